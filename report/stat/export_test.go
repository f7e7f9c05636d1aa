package stat

// Quantile is quantile, for tests.
var Quantile = quantile
