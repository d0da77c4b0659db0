"""The queue: the items of a day, those drawn at random, and what they say about the fraud that was missed."""
