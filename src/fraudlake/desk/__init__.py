"""The desk: cases, the review queue and its verdicts, and what they say of the fraud that is missed."""
