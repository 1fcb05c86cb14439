"""Click model: click tables, and a regression that predicts the click-through rate of a text for a query."""
