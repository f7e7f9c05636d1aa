package verifiers

// An Assurance says how sure a pass is: where the candidate's code ran, compared with where
// the expectation was. It is the zero Assurance unless the verdict is a pass.
type Assurance string

const (
	// Sealed means that no code of the candidate was where the expectation is.
	Sealed Assurance = "sealed"
	// Contrasted means that the candidate fails when the expectation changes. A candidate
	// that was prepared for changed tests can pass without a solution.
	Contrasted Assurance = "contrasted"
	// Executed means that the command succeeded, and does not succeed whatever happens.
	Executed Assurance = "executed"
)
