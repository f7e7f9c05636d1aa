// Package providertest is a provider of models that follows a script. It answers Anthropic's
// Messages, OpenAI's Responses and Chat Completions, and Google's generateContent, streamed or
// not, with text or with a call of one of the agent's tools. It can also be slow, fail, cut
// its answers and write nonsense. It records the requests, and trusts its clients.
package providertest
