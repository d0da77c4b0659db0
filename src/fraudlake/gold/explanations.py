"""Explanations: a prediction of fraud gets its top reasons in words.

What a feature did for a score is found by asking the model again with that feature at its usual value, the median of
the training data: the more the odds of fraud fall, the more it did. All of it is asked at once, and only for the few
rows that are predicted fraud. Features are tried one at a time, so two that say the same thing hide each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from fraudlake.gold import features, model

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fraudlake.gold.drift import Profile

TOP = 3

WORDS = {
    "amount": "the amount is %.2f",
    "hour_of_day": "it is in hour %.0f of the day (UTC)",
    "previous_amount": "the account's payment before it was %.2f",
    "seconds_since_previous": "it comes %.1f s after the account's payment before it",
    "count_minute": "the account made %.0f payments in the minute before it",
    "sum_minute": "the account paid %.2f in the minute before it",
    "count_hour": "the account made %.0f payments in the hour before it",
    "sum_hour": "the account paid %.2f in the hour before it",
    "count_day": "the account made %.0f payments in the day before it",
    "sum_day": "the account paid %.2f in the day before it",
    "amount_to_usual": "the amount is %.1f times the account's usual one",
    "hours_from_usual": "it is %.1f hours from the account's usual time of day",
}


def explained(scored: DataFrame, pipeline: Any, profile: Profile) -> DataFrame:
    """Add ``reasons``: of rows predicted fraud up to three sentences, the strongest first; of others null.

    A reason names the feature's value and, in brackets, the usual one.

    Args:
        scored: rows with ``transaction_id``, :data:`features.NAMES`, ``probability`` and ``prediction``.
        pipeline: the model that scored them.
        profile: the shapes of its training data.
    """
    quiet = scored.where(~F.col("prediction")).withColumn("reasons", F.lit(None).cast("array<string>"))
    flagged = scored.where("prediction").withColumn("row", F.struct("*"))
    medians = {name: F.lit(float(profile["shapes"][name]["median"])) for name in features.NAMES}
    asked = flagged.select("row", F.explode(F.array(*map(F.lit, features.NAMES))).alias("feature")).select(
        "row",
        "feature",
        *(
            F.when(F.col("feature") == name, medians[name]).otherwise(F.col(f"row.{name}")).alias(name)
            for name in medians
        ),
    )
    answered = model.score(asked, pipeline, 0.5)
    fall = _log_odds(F.col("row.probability")) - _log_odds(F.col("probability"))
    reason = F.struct((-fall).alias("rise"), _words(medians).alias("words"))
    by_row = (
        answered.withColumn("reason", F.when(fall > 0, reason))
        .groupBy("row.transaction_id")
        .agg(F.any_value("row").alias("row"), F.array_sort(F.collect_list("reason")).alias("found"))
    )
    told = by_row.select("row.*", F.slice(F.col("found.words"), 1, TOP).alias("reasons"))
    return quiet.unionByName(told)


def _log_odds(probability: Column) -> Column:
    bounded = F.greatest(F.least(probability, F.lit(1 - 1e-12)), F.lit(1e-12))
    return F.log(bounded / (1 - bounded))


def _words(medians: dict[str, Column]) -> Column:
    sentences = [
        F.when(
            F.col("feature") == name,
            F.format_string(
                f"{words} (usually {words[words.index('%') :].split()[0].rstrip(',')})", f"row.{name}", medians[name]
            ),
        )
        for name, words in WORDS.items()
    ]
    return F.coalesce(*sentences)
