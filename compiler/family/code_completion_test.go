package family_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/compiler/family"
)

// TestProgram: the program in the forms in which chat models answer.
func TestProgram(t *testing.T) {
	const (
		starter = "from typing import List\n\ndef add(a, b):\n    \"\"\"Return the sum.\"\"\"\n"
		whole   = "def add(a, b):\n    return a + b\n"
		body    = starter + "    return a + b\n"
	)
	for _, c := range []struct{ name, starter, answer, want string }{
		{"plain code", starter, whole, whole},
		{"a fence", starter, "```python\n" + whole + "```\n", whole},
		{"a fence without a language", starter, "```\n" + whole + "```\n", whole},
		{"words around a fence", starter, "Here is the function:\n\n```python\n" + whole + "```\n\nIt adds.\n", whole},
		{"a line break of Windows", starter, "```py\r\ndef add(a, b):\r\n    return a + b\r\n```\r\n", whole},
		{"a fence that does not end", starter, "Sure!\n```python\n" + whole, whole},
		{"an example after it", starter, "```python\n" + whole + "```\nUse:\n```python\nprint(add(1, 2))\n```", whole},
		{"its output after it", starter, "```python\n" + whole + "```\n```text\nlong long long long long output\n```\n", whole},
		{"two functions in two fences", starter, "```python\nimport math\ndef one():\n    return 1\n```\nand\n```python\n" + whole + "```", "import math\ndef one():\n    return 1\n\n" + whole},
		{"a fence of tildes", starter, "~~~python\n" + whole + "~~~\n", whole},
		{"a fence in a list", starter, "1. Add:\n\n   ```python\n   def add(a, b):\n       return a + b\n   ```\n", whole},
		{"a thought before it", starter, "<think>\n```python\ndef add(a, b): return 0\n```\n</think>\n```python\n" + whole + "```", whole},
		{"a body", starter, "    return a + b", body},
		{"a body that lost its first indentation", starter, "return a + b", body},
		{"a body in a fence", starter, "```python\nreturn a + b\n```", body},
		{"a body and a closing fence", starter, "    return a + b\n```\nThis adds.", body},
		{"a body that lost the indentation of one line", starter, "c = a + b\n    return c\n", starter + "    c = a + b\n    return c\n"},
		{"a body that lost all indentation", starter, "if a:\n    b += a\nreturn b\n", starter + "    if a:\n        b += a\n    return b\n"},
		{"a block that lost the indentation of one line", starter, "for _ in range(b):\n        a += 1\n    return a\n", starter + "    for _ in range(b):\n        a += 1\n    return a\n"},
		{"a body and another function", starter, "return one() * a + b\n\ndef one():\n    return 1\n", starter + "    return one() * a + b\n\ndef one():\n    return 1\n"},
		{"a prompt in prose", "Write a function that adds.", "```python\n" + whole + "```", whole},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := family.CodeCompletionEval{Prompt: c.starter, Extract: family.Fenced}
			got := e.Program(c.answer)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(got, e.Continue(got)); diff != "" {
				t.Errorf("a program is no longer itself: %s", diff)
			}
		})
	}
}
