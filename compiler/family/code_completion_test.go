package family_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/internal/test/must"
)

// TestProgramOfLanguages: the program is in a fence of the task's language.
func TestProgramOfLanguages(t *testing.T) {
	const code = "function add(a, b) {\n  return a + b;\n}\n"
	e := family.CodeCompletionEval{Prompt: "Write a function that adds.", Language: "javascript", Extract: family.Fenced}
	for _, answer := range []string{
		code,
		"```js\n" + code + "```\n",
		"In Python:\n```python\ndef add(a, b):\n    return a + b  # a long long long long long long line\n```\nHere:\n```javascript\n" + code + "```\n",
		"```js\n" + code + "```\n```js\nadd(1, 2);\n```\n```sh\nnode a-program-with-quite-a-long-name.js --and an-option\n```\n",
		"```js\n" + code + "```\nIt prints:\n```\n1 + 1 is 2\n1 + 2 is 3\n1 + 3 is 4\n1 + 4 is 5\n```\n",
		"```js\n" + code + "```\nTests:\n```js\nconst assert = require('assert');\nassert.equal(add(1, 2), 3);\n```\n<|im_end|>",
	} {
		if got := e.Program(answer); got != code {
			t.Errorf("%q gives %q", answer, got)
		}
	}
}

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
		{"a thought in square brackets", starter, "[THINK]\n```python\ndef add(a, b): return 0\n```\n[/THINK]\n```python\n" + whole + "```", whole},
		{"a thought in a channel", starter, "<|channel|>analysis<|message|>def add(): no<|end|><|start|>assistant<|channel|>final<|message|>```python\n" + whole + "```<|return|>", whole},
		{"the end of a turn", starter, whole + "</s>", whole[:len(whole)-1]},
		{"marks in square brackets", starter, "[BEGIN]\n" + whole + "[DONE]", whole},
		{"a body", starter, "    return a + b", body},
		{"a body that lost its first indentation", starter, "return a + b", body},
		{"a body indented by tabs", starter, "\tif a:\n\t\tb += a\n\treturn b\n", starter + "    if a:\n        b += a\n    return b\n"},
		{"a fence after the speaker's name", starter, "Assistant: ```python\n" + whole + "```\nDone.\n", whole},
		{"a body in a fence", starter, "```python\nreturn a + b\n```", body},
		{"a body and a closing fence", starter, "    return a + b\n```\nThis adds.", body},
		{"a body that lost the indentation of one line", starter, "c = a + b\n    return c\n", starter + "    c = a + b\n    return c\n"},
		{"a method's body that lost its first indentation", "class A:\n    def f(self, n):\n        ", "n += 1\n        return n\n", "class A:\n    def f(self, n):\n        n += 1\n        return n\n"},
		{"a method's body that lost all indentation", "class A:\n    def f(self, n):\n", "```\nif n:\n    n += 1\nreturn n\n```\n", "class A:\n    def f(self, n):\n        if n:\n            n += 1\n        return n\n"},
		{"a function's body after a class with a longer name", "class Solver:\n    def f(self): pass\n\ndef Solve(n):\n", "n += 1\n    return n\n", "class Solver:\n    def f(self): pass\n\ndef Solve(n):\n    n += 1\n    return n\n"},
		{"a function's body after a class", "class A:\n    def f(self): pass\n\ndef g(n):\n", "n += 1\n    return n\n", "class A:\n    def f(self): pass\n\ndef g(n):\n    n += 1\n    return n\n"},
		{"a body that lost all indentation", starter, "if a:\n    b += a\nreturn b\n", starter + "    if a:\n        b += a\n    return b\n"},
		{"a block that lost the indentation of one line", starter, "for _ in range(b):\n        a += 1\n    return a\n", starter + "    for _ in range(b):\n        a += 1\n    return a\n"},
		{"a body and another function", starter, "return one() * a + b\n\ndef one():\n    return 1\n", starter + "    return one() * a + b\n\ndef one():\n    return 1\n"},
		{"a mark of byte order", starter, "\ufeff```python\n" + whole + "```\n", whole},
		{"spaces that do not break", starter, "\u00a0\n```python\ndef add(a, b):\n\u00a0\u00a0\u00a0\u00a0return a + b\n```\u00a0\n", whole},
		{"a space without width", starter, "\u200b" + whole, whole},
		{"line breaks of old Macs", starter, "Here:\r```python\rdef add(a, b):\r    return a + b\r```\r", whole},
		{"a sentence before and after", starter, "Here is the code:\n" + whole + "It adds two numbers.\n", whole},
		{"an apostrophe and a list", starter, "Here's the code\n" + whole + "- It adds.\n", whole},
		{"prose in a string", starter, "\"\"\"\nThis is the text of a module.\n\"\"\"\n" + whole, "\"\"\"\nThis is the text of a module.\n\"\"\"\n" + whole},
		{"tests after it", starter, "```python\n" + whole + "```\n```python\nfrom your_module import add\nimport pytest\n\ndef test_add():\n    assert add(1, 2) == 3\n```\n", whole},
		{"a helper after it", starter, "```python\ndef add(a, b):\n    return one(a + b)\n```\n```python\ndef one(x):\n    return x\n```\n", "def add(a, b):\n    return one(a + b)\n\ndef one(x):\n    return x\n"},
		{"an alternative after it", starter, "```python\n" + whole + "```\nOr:\n```python\nimport numpy\n\ndef add_arrays(a, b):\n    return numpy.add(a, b)\n```\n", whole},
		{"a fence in a docstring", starter, "```python\ndef add(a, b):\n    \"\"\"\n    ```\n    add(1, 2)\n    ```\n    \"\"\"\n    return a + b\n```\n", "def add(a, b):\n    \"\"\"\n    ```\n    add(1, 2)\n    ```\n    \"\"\"\n    return a + b\n"},
		{"a fence in a quotation", starter, "> ```python\n> def add(a, b):\n>     return a + b\n> ```\n", whole},
		{"a fence in a document in a fence", starter, "````markdown\n# Answer\n```python\n" + whole + "```\n````\n", whole},
		{"a fence named after a file", starter, "```js\nclass Foo {}\n```\n```add.py\n" + whole + "```\n", whole},
		{"a method for a function", starter, "```python\nclass Solution:\n    def add(self, a, b):\n        return a + b\n```\n", "class Solution:\n    def add(self, a, b):\n        return a + b\nadd = Solution().add\n"},
		{"a function for a method", "class Solution:\n    def add(self, a, b):\n        \"\"\"The sum.\"\"\"\n", "```python\ndef add(self, a, b):\n    return a + b\n```\n", "class Solution:\n    def add(self, a, b):\n        return a + b\n"},
		{"code without a fence, and output in one", starter, whole + "\nOutput:\n```\n3\n```\n", whole + "\n"},
		{"a body without a fence, and an example in one", starter, "    return a + b\n\nExample:\n```python\nprint(add(1, 2))\n```\n", body},
		{"a fence after indented prose", starter, "- This adds:\n  it is a sum of two\n```\n" + whole + "```\n", whole},
		{"quotes in prose", starter, "1. Add\n   a docstring (`\"\"\"`):\n```python\n" + whole + "```\n", whole},
		{"an empty line in a quotation", starter, "> ```python\n> ONE = 1\n>\n> def add(a, b):\n>     return a + b\n> ```\n", "ONE = 1\n\n" + whole},
		{"a prompt in prose that calls it", "Write add(a, b).", "```python\n" + whole + "```\n```python\ndef main():\n    add(1, input())\nmain()\n```\n", whole},
		{"a prompt in prose", "Write a function that adds.", "```python\n" + whole + "```", whole},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := family.CodeCompletionEval{Prompt: c.starter, Extract: family.Fenced}
			got := e.Program(c.answer)
			must.Equal(t, c.want, got)
			if diff := cmp.Diff(got, e.Continue(got)); diff != "" {
				t.Errorf("a program is no longer itself: %s", diff)
			}
		})
	}
}

// TestContinue: code that begins where the starter code ends.
func TestContinue(t *testing.T) {
	const whole = "def add(a, b):\n    return a + b\n"
	for starter, code := range map[string]string{
		"def add(a, b):":       "    return a + b\n",
		"def add(a, b):\n":     "    return a + b\n",
		"def add(a, b):\n    ": "return a + b\n",
		"def add(a, b):\n\t":   "    return a + b\n",
		"def add(a, b):\n  ":   "    return a + b\n",
	} {
		if diff := cmp.Diff(whole, (family.CodeCompletionEval{StarterCode: starter}).Continue(code)); diff != "" {
			t.Errorf("%q and %q: %s", starter, code, diff)
		}
	}
}
