"""The desk: cases, the review queue and its verdicts, and estimates of the fraud that the queue misses."""
