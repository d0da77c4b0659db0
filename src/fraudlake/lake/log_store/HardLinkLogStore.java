package fraudlake;

import io.delta.storage.HDFSLogStore;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * A file of a table's log is created by a hard link, which fails where another process has created the file first.
 *
 * <p>Delta's own store for a local disk looks for the file, then renames: a commit in between is lost. delta-rs links, too.
 */
public class HardLinkLogStore extends HDFSLogStore {
  public HardLinkLogStore(Configuration configuration) {
    super(configuration);
  }

  public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration) throws IOException {
    if (overwrite.booleanValue()) {
      super.write(path, actions, overwrite, configuration);
      return;
    }
    java.nio.file.Path file = Paths.get(path.toUri().getPath(), new String[0]);
    java.nio.file.Path draft = file.resolveSibling("." + file.getFileName() + "." + UUID.randomUUID() + ".tmp");
    try {
      OutputStream out = new BufferedOutputStream(Files.newOutputStream(draft, new java.nio.file.OpenOption[0]));
      try {
        while (actions.hasNext()) {
          out.write(((String) actions.next()).getBytes(StandardCharsets.UTF_8));
          out.write('\n');
        }
      } finally {
        out.close();
      }
      try {
        Files.createLink(file, draft);
      } catch (FileAlreadyExistsException error) {
        throw new FileAlreadyExistsException(path.toString());
      }
    } finally {
      Files.deleteIfExists(draft);
    }
  }
}
