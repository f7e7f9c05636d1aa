package harness

// Outage is outage, for tests.
var Outage = outage
