package fraudlake;

import io.delta.storage.HDFSLogStore;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.CopyOption;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * A file of a table's log is created by a hard link, which fails where another process has created the file first.
 *
 * <p>Delta's own store for a local disk looks for the file, then renames: a commit in between is lost. delta-rs links, too.
 *
 * <p>No file gets a checksum beside it, as Hadoop writes one: where delta-rs overwrites the file, Delta would take it for
 * damaged and wait three seconds in each process that opens the table.
 */
public class HardLinkLogStore extends HDFSLogStore {
  public HardLinkLogStore(Configuration configuration) {
    super(configuration);
  }

  public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration) throws IOException {
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
      if (overwrite.booleanValue()) {
        Files.deleteIfExists(file.resolveSibling("." + file.getFileName() + ".crc")); // of an earlier version
        Files.move(draft, file, new CopyOption[] {StandardCopyOption.ATOMIC_MOVE});
        return;
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
