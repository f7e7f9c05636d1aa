package families

import (
	"regexp"

	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/text"
)

// told returns the verdict on a text, with what was read in it.
func told(t text.Verdict) verifiers.Verdict {
	v := verifiers.Pass()
	v.Assurance = verifiers.Sealed
	if t.Reason != "" {
		v = verifiers.Fail(t.Reason, map[string]string{
			text.None: "no answer was found in the text", text.Several: "what was read in the answer leaves open what is meant",
			text.Wrong: "the answer is none of those accepted", text.Rejected: "the answer holds or resembles a rejected one",
		}[t.Reason])
	}
	return v.With(verifiers.Read, t.Read).With(verifiers.Rule, string(t.Rule))
}

// pattern compiles the author's pattern, which the compiler has checked; nil for "".
func pattern(expr string) *regexp.Regexp {
	if expr == "" {
		return nil
	}
	return regexp.MustCompile(expr)
}
