"""Text: reads and writes texts that people and programs exchange, such as JSON, TOML, SQL, time spans and counts."""
