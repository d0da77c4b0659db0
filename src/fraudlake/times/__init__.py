"""Times: the calendar that Spark has, time spans, units since 1970, and times as columns."""
