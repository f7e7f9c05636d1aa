// Package providertest is a provider of models that follows a script. It implements
// Anthropic's Messages, OpenAI's Responses and Chat Completions, and Google's
// generateContent, streamed or not, and answers each turn of an agent with the next step of
// the script: text, or a call of one of the tools that the agent offers. It can be slow, fail,
// cut its answers and write nonsense. It records the requests.
//
// It is for tests and demonstrations, and trusts its clients.
package providertest
