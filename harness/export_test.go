package harness

// Outage is the rule by which the provider, and not the agent, is to blame.
var Outage = outage
