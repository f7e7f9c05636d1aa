package harness

// Unexported functions for tests.
var (
	IsCredential = isCredential
	Outage       = outage
	UnknownModel = unknownModel
)
