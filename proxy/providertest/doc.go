// Package providertest is a provider of models that follows a script: it speaks
// Anthropic's Messages and OpenAI's Responses and Chat Completions, streamed and
// not, and answers each turn of an agent with the next step of the script, be it
// text or a call of the agent's own tools in the shape that this agent offers
// them. It can be slow, fail, cut its answers and write nonsense, and keeps the
// requests that it saw.
//
// It is for tests and demonstrations, and trusts whoever speaks to it.
package providertest
