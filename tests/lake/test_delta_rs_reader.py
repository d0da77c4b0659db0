"""The reader of delta-rs: what cannot be read is said in a line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from fraudlake.errors import FraudlakeError
from fraudlake.lake import delta_rs_reader


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"number": [1]}))
    (file,) = tmp_path.glob("*.parquet")
    file.unlink()
    with pytest.raises(FraudlakeError, match=f"^{file} is gone, which the log of its table names"):
        delta_rs_reader.Opened().query("SELECT number FROM rows", {"rows": DeltaTable(tmp_path)})
