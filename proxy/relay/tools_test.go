package relay_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
)

const (
	messagesPath  = "/v1/messages"
	responsesPath = "/v1/responses"
	chatPath      = "/v1/chat/completions"
	notice        = `[removed by sbench: the provider may not fetch, run or look up anything here]`
)

// A toolCase is a request that asks the provider to act outside, or seems to. body and
// want are without the model, which comes first.
type toolCase struct {
	name, body string
	want       string // "=": sent unchanged; "!reason": refused under either policy
	found      string // logged as stripped, or refused under RefuseExternalTools
}

func anthropicCases() []toolCase {
	return []toolCase{
		{"no tools", `"messages":[{"role":"user","content":"hi"}]}`, "=", ""},
		{"untyped tool", `"tools":[{"name":"Bash","input_schema":{}}]}`, "=", ""},
		{"null type", `"tools":[{"type":null,"name":"Bash"}]}`, "=", ""},
		{"custom tool", `"tools":[{"type":"custom","name":"a"}]}`, "=", ""},
		{"client tools", `"tools":[{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"},{"type":"memory_20250818","name":"m"}]}`, "=", ""},
		{"web search", `"tools":[{"name":"a"},{"type":"web_search_20250305","name":"web_search"}]}`, `"tools":[{"name":"a"}]}`, "web_search_20250305"},
		{"newer web search", `"tools":[{"type":"web_search_20260318","name":"web_search"},{"name":"a"}]}`, `"tools":[{"name":"a"}]}`, "web_search_20260318"},
		{"web fetch alone", `"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}],"max_tokens":1}`, `"max_tokens":1}`, "web_fetch_20250910"},
		{"code execution", `"tools":[{"type":"code_execution_20250825","name":"x"}]}`, `}`, "code_execution_20250825"},
		{"advisor", `"tools":[{"type":"advisor_20260301","name":"advisor","model":"other"}]}`, `}`, "advisor_20260301"},
		{"mcp toolset", `"tools":[{"type":"mcp_toolset","mcp_server_name":"s"}]}`, `}`, "mcp_toolset"},
		{"tool search", `"tools":[{"type":"tool_search_tool_regex_20251119","name":"s"}]}`, `}`, "tool_search_tool_regex_20251119"},
		{"computer", `"tools":[{"type":"computer_20250124","name":"c"}]}`, `}`, "computer_20250124"},
		{"a type nobody knows", `"tools":[{"type":"time_travel_20300101","name":"c"}]}`, `}`, "time_travel_20300101"},
		{"a type that only begins well", `"tools":[{"type":"bash_20250124_remote","name":"c"}]}`, `}`, "bash_20250124_remote"},
		{"a type that is no name", `"tools":[{"type":"we b\u0000","name":"c"}]}`, `}`, "unknown"},
		{"type in escapes", `"tools":[{"type":"web\u005fsearch_20250305","name":"c"}]}`, `}`, "web_search_20250305"},
		{"tools in escapes", `"\u0074ools":[{"type":"web_search_20250305","name":"c"}]}`, `}`, "web_search_20250305"},
		{"choice of a tool that is gone", `"tools":[{"name":"a"},{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"tool","name":"web_search"}}`, `"tools":[{"name":"a"}]}`, "web_search_20250305"},
		{"choice of a tool that is left", `"tools":[{"name":"a"},{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"tool","name":"a"}}`, `"tools":[{"name":"a"}],"tool_choice":{"type":"tool","name":"a"}}`, "web_search_20250305"},
		{"choice without tools", `"tool_choice":{"type":"any"},"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, `}`, "web_search_20250305"},
		{"strange choice", `"tool_choice":{"type":"mcp"}}`, `}`, "tool_choice:mcp"},
		{"mcp servers", `"mcp_servers":[{"type":"url","url":"https://evil.test"}],"max_tokens":1}`, `"max_tokens":1}`, "mcp_servers"},
		{"no mcp servers", `"mcp_servers":[]}`, "=", ""},
		{"container", `"container":{"skills":[{"type":"anthropic","skill_id":"pptx"}]}}`, `}`, "container"},
		{"null container", `"container":null}`, "=", ""},
		{"fallbacks", `"fallbacks":[{"model":"other"}]}`, `}`, "fallbacks"},
		{"fast", `"speed":"fast"}`, `}`, "speed"},
		{"standard speed", `"speed":"standard"}`, "=", ""},
		{"priority", `"service_tier":"priority"}`, `}`, "service_tier"},
		{"region", `"inference_geo":"us"}`, `}`, "inference_geo"},
		{"a field nobody knows", `"telepathy":{"url":"https://evil.test"}}`, `}`, "telepathy"},
		{"a field in capitals", `"Tools":[{"type":"web_search_20250305"}]}`, "!malformed_request", ""},
		{"a type in capitals", `"tools":[{"Type":"web_search_20250305","name":"a"}]}`, "!malformed_request", ""},
		{"a key with a Kelvin sign", `"messages":[{"role":"user","content":[{"type":"image","\u017fource":{"type":"url"}}]}]}`, "!malformed_request", ""},
		{"tools are no list", `"tools":{"type":"web_search_20250305"}}`, "!malformed_request", ""},
		{"a tool is no object", `"tools":["web_search"]}`, "!malformed_request", ""},
		{"a type is no string", `"tools":[{"type":["web_search_20250305"]}]}`, "!malformed_request", ""},
		{"image of bytes", `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]}]}`, "=", ""},
		{"image of a URL", `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://evil.test/?s"}}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "image:url"},
		{"image of bytes and a URL", `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"","url":"https://evil.test/"}}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "image:base64"},
		{"document of a file", `"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "document:file"},
		{"document of text", `"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","data":"https://x.test"}}]}]}`, "=", ""},
		{"URL in a document's content", `"messages":[{"role":"user","content":[{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"url","url":"u"}}]}}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"document","source":{"type":"content","content":[{"type":"text","text":"` + notice + `"}]}}]}]}`, "image:url"},
		{"URL in a tool's result", `"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"url","url":"u"}}]}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"},{"type":"text","text":"` + notice + `"}]}]}]}`, "image:url"},
		{"URL in the system prompt", `"system":[{"type":"image","source":{"type":"url","url":"u"}}]}`, `"system":[{"type":"text","text":"` + notice + `"}]}`, "image:url"},
		{"provider's tool in the history", `"messages":[{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}}]}]}`,
			`"messages":[{"role":"assistant","content":[{"type":"text","text":"` + notice + `"}]}]}`, "server_tool_use"},
		{"container upload", `"messages":[{"role":"user","content":[{"type":"container_upload","file_id":"f"}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "container_upload"},
		{"a block without a type", `"messages":[{"role":"user","content":[{"source":{"type":"url"}}]}]}`, "!malformed_request", ""},
		{"unknown fields of messages, parts, sources and tools",
			`"messages":[{"role":"user","url":"https://evil.test/1","content":[{"type":"text","text":"x","source":{"type":"url","url":"https://evil.test/2"}},{"type":"document","source":{"type":"text","data":"x","at":"u"},"url":"u"}]}],"tools":[{"name":"f","url":"https://evil.test/3"}],"diagnostics":{"url":"u"}}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"document","source":{"type":"text","data":"x"}}]}],"tools":[{"name":"f"}]}`, "url source at diagnostics"},
		{"citation of an address", `"messages":[{"role":"user","content":[{"type":"text","text":"x","citations":[{"type":"web_search_result_location","url":"https://x.test"}]}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"x","citations":[{"type":"web_search_result_location"}]}]}]}`, "url"},
		{"source that is an address", `"messages":[{"role":"user","content":[{"type":"search_result","source":"https://evil.test","title":"t","content":[]}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "source search_result"},
		{"callers at the provider", `"tools":[{"name":"f","allowed_callers":["direct","code_execution_20250825"]}],"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{},"caller":{"type":"code_execution_20250825"}}]}]}`,
			`"tools":[{"name":"f","allowed_callers":["direct"]}],"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}]}`, "allowed_callers code_execution_20250825"},
		{"an hour's cache", `"cache_control":{"type":"ephemeral","ttl":"1h"},"system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"5m"}}]}`,
			`"cache_control":{"type":"ephemeral"},"system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"5m"}}]}`, "cache_control.ttl"},
		{"another model's thoughts", `"thinking":{"type":"adaptive","model":"other"},"context_management":{"edits":[{"type":"compact_20260112","model":"other"}]}}`,
			`"thinking":{"type":"adaptive"},"context_management":{"edits":[{"type":"compact_20260112"}]}}`, "model"},
		{"data that looks like tools",
			`"tools":[{"name":"a","description":"web_search_20250305","input_schema":{"type":"object","properties":{"tools":{"type":"array","items":{"type":"web_search_20250305"}},"Type":{"type":"string"},"mcp_servers":{"type":"url"}}}}],` +
				`"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"a","input":{"type":"image","Source":{"type":"url","url":"https://x.test"},"tools":[{"type":"mcp"}],"mcp_servers":[1]}}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"{\"type\":\"web_search_20250305\"}"},{"type":"text","text":"https://x.test","citations":[{"type":"char_location","cited_text":"https://x.test"}]}]}],` +
				`"metadata":{"user_id":"{\"tools\":1}"},"thinking":{"type":"enabled"},"context_management":{"edits":[]}}`, "=", ""},
	}
}

func responsesCases() []toolCase {
	ns := func(tools string) string { return `{"type":"namespace","name":"n","tools":[` + tools + `]}` }
	return []toolCase{
		{"text input", `"input":"hi","background":false,"previous_response_id":null}`, "=", ""},
		{"client tools", `"tools":[{"type":"function","name":"f"},{"type":"custom","name":"c"},{"type":"local_shell"},{"type":"apply_patch"},{"type":"tool_search"}]}`, "=", ""},
		{"codex's default", `"tools":[{"type":"function","name":"f"},{"type":"web_search","external_web_access":true}],"tool_choice":"auto","parallel_tool_calls":true}`,
			`"tools":[{"type":"function","name":"f"}],"tool_choice":"auto","parallel_tool_calls":true}`, "web_search"},
		{"every hosted tool", `"tools":[{"type":"web_search_2025_08_26"},{"type":"web_search_preview"},{"type":"file_search"},{"type":"code_interpreter"},{"type":"image_generation"},{"type":"mcp"},{"type":"programmatic_tool_calling"},{"type":"computer_use_preview"}],"tool_choice":"required","parallel_tool_calls":true}`,
			`}`, "web_search_2025_08_26 web_search_preview file_search code_interpreter image_generation mcp programmatic_tool_calling computer_use_preview"},
		{"no type", `"tools":[{"name":"f"}]}`, `}`, "unknown"},
		{"local shell tool", `"tools":[{"type":"shell","environment":{"type":"local"}}]}`, "=", ""},
		{"container shell", `"tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`, `}`, "shell"},
		{"shell of no place", `"tools":[{"type":"shell"}]}`, `}`, "shell"},
		{"shell in capitals", `"tools":[{"type":"shell","environment":{"type":"local","Type":"container_auto"}}]}`, "!malformed_request", ""},
		{"namespace", `"tools":[` + ns(`{"type":"function","name":"f"}`) + `]}`, "=", ""},
		{"mcp in a namespace", `"tools":[` + ns(`{"type":"function","name":"f"},{"type":"mcp"}`) + `]}`, `"tools":[` + ns(`{"type":"function","name":"f"}`) + `]}`, "mcp"},
		{"mcp in two namespaces", `"tools":[` + ns(ns(`{"type":"mcp"}`)) + `,{"type":"function","name":"f"}]}`, `"tools":[{"type":"function","name":"f"}]}`, "mcp"},
		{"mcp in a function", `"tools":[{"type":"function","name":"f","tools":[{"type":"mcp"},{"type":"custom","name":"c"}]}]}`, `"tools":[{"type":"function","name":"f","tools":[{"type":"custom","name":"c"}]}]}`, "mcp"},
		{"additional tools", `"input":[{"type":"additional_tools","role":"developer","tools":[` + ns(`{"type":"custom","name":"exec"}`) + `]}]}`, "=", ""},
		{"mcp in additional tools", `"input":[{"type":"additional_tools","tools":[{"type":"mcp","server_url":"https://evil.test"},{"type":"function","name":"f"}]}]}`,
			`"input":[{"type":"additional_tools","tools":[{"type":"function","name":"f"}]}]}`, "mcp"},
		{"only mcp in additional tools", `"input":[{"type":"additional_tools","tools":[{"type":"mcp"}]},{"role":"user","content":"hi"}],"tool_choice":"required"}`,
			`"input":[{"role":"user","content":"hi"}]}`, "mcp"},
		{"mcp in the output of a search", `"input":[{"type":"tool_search_output","call_id":"c","tools":[{"type":"mcp"}]}]}`, `"input":[{"type":"tool_search_output","call_id":"c","tools":[]}]}`, "mcp"},
		{"mcp in a message", `"input":[{"role":"user","content":"hi","tools":[{"type":"mcp"}]}]}`, `"input":[{"role":"user","content":"hi"}]}`, "tools"},
		{"mcp approval", `"input":[{"type":"mcp_approval_response","approve":true},{"role":"user","content":"hi"}]}`, `"input":[{"role":"user","content":"hi"}]}`, "input:mcp_approval_response"},
		{"computer", `"input":[{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"https://evil.test"}}]}`, `"input":[]}`, "input:computer_call_output"},
		{"reference", `"input":[{"type":"item_reference","id":"msg_1"}]}`, "!state_not_allowed", ""},
		{"instructions that are items", `"instructions":[{"type":"item_reference","id":"msg_1"}]}`, "!malformed_request", ""},
		{"an item that is no object", `"input":["msg_1"]}`, "!malformed_request", ""},
		{"reference without a type", `"input":[{"id":"msg_1"}]}`, "!state_not_allowed", ""},
		{"previous response", `"previous_response_id":"resp_1"}`, "!state_not_allowed", ""},
		{"conversation", `"conversation":{"id":"c"}}`, "!state_not_allowed", ""},
		{"stored prompt", `"prompt":{"id":"p"}}`, "!state_not_allowed", ""},
		{"background", `"background":true}`, "!state_not_allowed", ""},
		{"priority", `"service_tier":"priority"}`, `}`, "service_tier"},
		{"flex", `"service_tier":"flex"}`, "=", ""},
		{"a field nobody knows", `"agents":["a"]}`, `}`, "agents"},
		{"choice of a hosted tool", `"tool_choice":{"type":"web_search_preview"}}`, `}`, "tool_choice:web_search_preview"},
		{"choice among tools", `"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp","server_label":"s"},{"type":"function","name":"f"}]}}`,
			`"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}}`, "tool_choice:mcp"},
		{"image of bytes", `"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA==","file_id":null}]}]}`, "=", ""},
		{"image of a URL", `"input":[{"role":"user","content":[{"type":"input_image","image_url":"https://evil.test/?s"}]}]}`,
			`"input":[{"role":"user","content":[{"type":"input_text","text":"` + notice + `"}]}]}`, "input_image"},
		{"image of a URL behind a space", `"input":[{"role":"user","content":[{"type":"input_image","image_url":" data:,https://evil.test"}]}]}`,
			`"input":[{"role":"user","content":[{"type":"input_text","text":"` + notice + `"}]}]}`, "input_image"},
		{"image of the model's own", `"input":[{"role":"assistant","content":[{"type":"input_image","file_id":"f"}]}]}`,
			`"input":[{"role":"assistant","content":[{"type":"output_text","text":"` + notice + `"}]}]}`, "file_id input_image"},
		{"file of a URL", `"input":[{"role":"user","content":[{"type":"input_file","file_url":"https://evil.test"}]}]}`,
			`"input":[{"role":"user","content":[{"type":"input_text","text":"` + notice + `"}]}]}`, "file_url input_file"},
		{"image in a tool's output", `"input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"http://evil.test"}]}]}`,
			`"input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"` + notice + `"}]}]}`, "input_image"},
		{"image in a custom tool's output", `"input":[{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_image","image_url":"http://evil.test"}]}]}`,
			`"input":[{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_text","text":"` + notice + `"}]}]}`, "input_image"},
		{"audio of a URL", `"input":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"https://evil.test","format":"wav"}}]}]}`,
			`"input":[{"role":"user","content":[{"type":"input_text","text":"` + notice + `"}]}]}`, "input_audio"},
		{"URLs in reasoning and outputs", `"input":[{"type":"reasoning","summary":[],"encrypted_content":"e","content":[{"type":"input_image","image_url":"https://evil.test"}]},{"type":"shell_call_output","call_id":"a","output":[{"type":"input_image","image_url":"https://evil.test"}]},{"type":"local_shell_call_output","id":"a","output":[{"type":"input_image"}]},{"type":"apply_patch_call_output","call_id":"a","output":[{"type":"input_file","file_url":"u"}]}]}`,
			`"input":[{"type":"reasoning","summary":[],"encrypted_content":"e","content":[{"type":"input_image"}]},{"type":"shell_call_output","call_id":"a","output":[{"type":"input_image"}]},{"type":"local_shell_call_output","id":"a","output":"` + notice + `"},{"type":"apply_patch_call_output","call_id":"a","output":"` + notice + `"}]}`, "image_url output"},
		{"a tool's server", `"tools":[{"type":"function","name":"f","parameters":{"$ref":"https://evil.test/s.json","$defs":{"a":{"$ref":"#/x"}}},"server_url":"https://evil.test","connector_id":"c"},{"type":"shell","environment":{"type":"local","skills":[{"skill_id":"s"}],"network_policy":{}}}]}`,
			`"tools":[{"type":"function","name":"f","parameters":{"$defs":{"a":{"$ref":"#/x"}}}},{"type":"shell","environment":{"type":"local"}}]}`, "ref server_url connector_id skills network_policy"},
		{"data that looks like tools",
			`"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{"tools":{"type":"mcp"},"Type":{}}}}],` +
				`"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{\"tools\":[{\"type\":\"mcp\"}]}"},` +
				`{"type":"function_call_output","call_id":"c","output":"{\"type\":\"mcp\",\"server_url\":\"https://x.test\"}"},` +
				`{"type":"reasoning","summary":[],"encrypted_content":"e"},{"role":"user","content":"https://x.test"},{"type":"compaction","encrypted_content":"e"}],` +
				`"client_metadata":{"tools":"mcp"},"text":{"format":{"type":"json_schema","schema":{"type":"mcp"}}},"include":["reasoning.encrypted_content"],"store":false}`, "=", ""},
	}
}

func chatCases() []toolCase {
	return []toolCase{
		{"function", `"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}]}`, "=", ""},
		{"URL in capitals", `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","URL":"https://evil.test"}}]}]}`, "!malformed_request", ""},
		{"file in capitals", `"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"data:x"},"File":{"file_id":"f"}}]}]}`, "!malformed_request", ""},
		{"tier in capitals", `"Service_Tier":"priority"}`, "!malformed_request", ""},
		{"hosted", `"tools":[{"type":"web_search"},{"type":"function","function":{"name":"f"}}]}`, `"tools":[{"type":"function","function":{"name":"f"}}]}`, "web_search"},
		{"only hosted", `"tools":[{"type":"mcp"}],"tool_choice":"required","parallel_tool_calls":false}`, `}`, "mcp"},
		{"web search options", `"web_search_options":{}}`, `}`, "web_search_options"},
		{"image of bytes", `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}`, "=", ""},
		{"image of a URL", `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://evil.test"}}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "image_url"},
		{"image of an address without a scheme", `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"//evil/s"}}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "image_url"},
		{"image of a bare URL", `"messages":[{"role":"user","content":[{"type":"image_url","image_url":"https://evil.test"}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "image_url"},
		{"file of bytes", `"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"data:application/pdf;base64,AA=="}}]}]}`, "=", ""},
		{"file at the provider", `"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "file_id file"},
		{"file of a URL as data", `"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"https://evil.test"}}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "file"},
		{"priority", `"service_tier":"priority"}`, `}`, "service_tier"},
		{"choice among tools", `"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"web_search"}]}}}`, `}`, "tool_choice:web_search tool_choice:allowed_tools"},
		{"audio of a URL", `"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"https://evil.test","format":"wav"}}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "input_audio"},
		{"audio of bytes", `"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"UklGR\/+A=","format":"wav"}}]}]}`, "=", ""},
		{"file of a URL without a scheme", `"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a","file_data":"//evil.test/x"}}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"` + notice + `"}]}]}`, "file"},
		{"image in a prediction", `"prediction":{"type":"content","content":[{"type":"image_url","image_url":{"url":"https://evil.test"}}]}}`,
			`"prediction":{"type":"content","content":[{"type":"text","text":"` + notice + `"}]}}`, "image_url"},
		{"unknown fields of messages and parts", `"messages":[{"role":"user","content":[{"type":"text","text":"x","video_url":{"url":"u"}}],"images":["https://evil.test"],"name":"https://evil.test"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"web_search"}]}]}`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":null,"tool_calls":[]}]}`, "video_url images name tool_calls:web_search"},
		{"a schema's dialect elsewhere", `"functions":[{"name":"a","parameters":{"$schema":"http://json-schema.org/draft-07/schema#"}},{"name":"b","parameters":{"$schema":"https://json-schema.org/draft/2020-12/schema"}},{"name":"c","parameters":{"$schema":"https://json-schema.org@evil.test/"}},{"name":"d","parameters":"https://evil.test/s.json"}]}`,
			`"functions":[{"name":"a","parameters":{"$schema":"http://json-schema.org/draft-07/schema#"}},{"name":"b","parameters":{"$schema":"https://json-schema.org/draft/2020-12/schema"}},{"name":"c","parameters":{}},{"name":"d"}]}`, "schema parameters"},
		{"a schema elsewhere", `"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"\u0024ref":"https://evil.test/s.json"}}}}`,
			`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{}}}}`, "ref"},
		{"stream", `"stream":true}`, `"stream":true,"stream_options":{"include_usage":true}}`, ""},
		{"stream with null options", `"stream_options":null,"stream":true}`, `"stream":true,"stream_options":{"include_usage":true}}`, ""},
		{"stream that shall not count", `"stream_options":{"include_usage":false,"include_obfuscation":false},"stream":true}`,
			`"stream_options":{"include_obfuscation":false,"include_usage":true},"stream":true}`, ""},
		{"stream that counts", `"stream_options":{"include_usage":true},"stream":true}`, "=", ""},
		{"data that looks like tools",
			`"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"type\":\"mcp\"}"}}]},{"role":"tool","tool_call_id":"c","content":"https://x.test"}],` +
				`"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"web_search_options":{"type":"mcp"}}}}}],"response_format":{"type":"json_schema"}}`, "=", ""},
	}
}

// googleCases has both spellings of names.
func googleCases() []toolCase {
	return []toolCase{
		{"text", `"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, "=", ""},
		{"one content", `"contents":{"parts":{"text":"hi"}},"systemInstruction":{"parts":[{"text":"be kind"}]}}`, "=", ""},
		{"functions", `"tools":[{"functionDeclarations":[{"name":"f","parametersJsonSchema":{"type":"object"}}]}],"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}}`, "=", ""},
		{"search", `"tools":[{"functionDeclarations":[]},{"googleSearch":{}}]}`, `"tools":[{"functionDeclarations":[]}]}`, "googleSearch"},
		{"search beside functions", `"tools":[{"functionDeclarations":[],"google_search":{}}]}`, `"tools":[{"functionDeclarations":[]}]}`, "google_search"},
		{"only hosted tools", `"tools":[{"codeExecution":{}},{"urlContext":{}},{"url_context":{}}],"contents":[]}`, `"contents":[]}`, "codeExecution urlContext url_context"},
		{"retrieval settings", `"toolConfig":{"retrievalConfig":{}}}`, `}`, "retrievalConfig"},
		{"file by address", `"contents":[{"parts":[{"fileData":{"fileUri":"https://evil.test"}}]}]}`, `"contents":[{"parts":[{"text":"` + notice + `"}]}]}`, "fileData"},
		{"file by address, the other name", `"contents":[{"parts":[{"text":"look","file_data":{"file_uri":"https://evil.test"}}]}]}`, `"contents":[{"parts":[{"text":"look"}]}]}`, "file_data"},
		{"file in the instructions", `"system_instruction":{"parts":{"fileData":{}}}}`, `"system_instruction":{"parts":{"text":"` + notice + `"}}}`, "fileData"},
		{"file in a result", `"contents":[{"parts":[{"functionResponse":{"name":"f","response":{"fileData":"data"},"parts":[{"fileData":{}}]}}]}]}`, `"contents":[{"parts":[{"functionResponse":{"name":"f","response":{"fileData":"data"},"parts":[{}]}}]}]}`, "fileData"},
		{"bytes", `"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}]}`, "=", ""},
		{"an address as bytes", `"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"https://evil.test"}}]}]}`, `"contents":[{"parts":[{"inlineData":{"mimeType":"image/png"}}]}]}`, "data"},
		{"calls", `"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":{"fileData":1}},"thoughtSignature":"x"},{"text":"hm","thought":true}]}]}`, "=", ""},
		{"kept state", `"cachedContent":"cachedContents/x"}`, "!state_not_allowed", ""},
		{"kept state, the other name", `"cached_content":"cachedContents/x"}`, "!state_not_allowed", ""},
		{"other models", `"generationConfig":{"temperature":0,"routingConfig":{"manualMode":{"modelName":"other"}}}}`, `"generationConfig":{"temperature":0}}`, "routingConfig"},
		{"a field that nobody knows", `"timeTravel":{}}`, `}`, "timeTravel"},
		{"another model in the body", `"model":"models/other"}`, "!model_not_allowed", ""},
		{"the model in the body", `"model":"models/m","generationConfig":{"candidateCount":1,"maxOutputTokens":5}}`, "=", ""},
		{"several candidates", `"generationConfig":{"candidate_count":2}}`, "!malformed_request", ""},
		{"capitals", `"Contents":[]}`, "!malformed_request", ""},
		{"parts in capitals", `"contents":[{"Parts":[{"fileData":{}}]}]}`, "!malformed_request", ""},
		{"twice", `"tools":[],"tools":[{"googleSearch":{}}]}`, "!malformed_json", ""},
		{"no list", `"tools":{"googleSearch":{}}}`, "!malformed_request", ""},
		{"no object", `"contents":["x"]}`, "!malformed_request", ""},
		{"null", `"contents":null,"tools":null,"toolConfig":null,"cachedContent":null,"generationConfig":null,"systemInstruction":null}`, "=", ""},
		{"null inside", `"contents":[null,{"parts":null},{"parts":[null,{"functionResponse":null}]}],"tools":[null]}`, "=", ""},
		{"of the model", `"model":"models/m","generateContentRequest":{"contents":[]}}`, `"model":"models/m"}`, "generateContentRequest"},
	}
}

// countCases has whole requests in a field.
func countCases() []toolCase {
	return []toolCase{
		{"another model", `"generateContentRequest":{"model":"models/other"}}`, "!model_not_allowed", ""},
		{"file", `"generateContentRequest":{"model":"models/m","contents":[{"parts":[{"fileData":{}}]}]}}`,
			`"generateContentRequest":{"model":"models/m","contents":[{"parts":[{"text":"` + notice + `"}]}]}}`, "fileData"},
	}
}

// toolAPIs are the APIs with their cases.
func toolAPIs() []toolAPI {
	return []toolAPI{
		{relay.Anthropic, messagesPath, anthropicCases()},
		{relay.OpenAI, responsesPath, responsesCases()},
		{relay.OpenAI, chatPath, chatCases()},
		{relay.Google, generatePath, googleCases()},
		{relay.Google, "/v1beta/models/m:countTokens", countCases()},
	}
}

type toolAPI struct {
	provider relay.Provider
	path     string
	cases    []toolCase
}

func TestExternalTools(t *testing.T) {
	for _, api := range toolAPIs() {
		up := newAnswers(t)
		strip := newRig(t, api.provider, up.url, nil)
		refuse := newRig(t, api.provider, up.url, func(c *relay.Config) { c.RefuseExternalTools = true })
		for _, c := range api.cases {
			t.Run(api.path+"/"+c.name, func(t *testing.T) {
				testStrip(t, strip, up, api.path, c)
				testRefuse(t, refuse, up, api.path, c)
			})
		}
		checkStripped(t, strip, api.cases)
	}
}

// whole adds the model, unless it is in the path.
func whole(path, rest string) string {
	switch {
	case strings.HasPrefix(path, "/v1beta/"):
		return "{" + rest
	case rest == "}":
		return `{"model":"m"}`
	}
	return `{"model":"m",` + rest
}

func testStrip(t *testing.T, r *rig, up *answers, path string, c toolCase) {
	t.Helper()
	before, _, _ := up.seen()
	resp := r.post(path, whole(path, c.body))
	answer := text(t, resp)
	after, _, got := up.seen()
	if reason, refused := strings.CutPrefix(c.want, "!"); refused {
		if after != before || resp.StatusCode < 400 || resp.Header.Get("X-Sbench-Relay") != reason {
			t.Errorf("sent on %d, status %d, %s", after-before, resp.StatusCode, answer)
		}
		return
	}
	want := whole(path, c.want)
	if c.want == "=" {
		want = whole(path, c.body)
	}
	if diff := cmp.Diff(want, got); diff != "" || resp.StatusCode != 200 {
		t.Errorf("status %d, sent on (-want +got):\n%s", resp.StatusCode, diff)
	}
}

// testRefuse: the relay refuses a request exactly if it would otherwise remove something.
func testRefuse(t *testing.T, r *rig, up *answers, path string, c toolCase) {
	t.Helper()
	before, _, _ := up.seen()
	resp := r.post(path, whole(path, c.body))
	answer := text(t, resp)
	after, _, _ := up.seen()
	if c.found == "" && !strings.HasPrefix(c.want, "!") {
		if resp.StatusCode != 200 || after != before+1 {
			t.Errorf("refused: %s", answer)
		}
		return
	}
	first, _, _ := strings.Cut(c.found, " ")
	if resp.StatusCode < 400 || after != before || !strings.Contains(answer, first) {
		t.Errorf("under refusal: sent on %d, status %d: %s", after-before, resp.StatusCode, answer)
	}
	if !json.Valid([]byte(answer)) {
		t.Errorf("the error is no JSON: %s", answer)
	}
}

// checkStripped compares the log and the facts with the cases, in the order of these.
func checkStripped(t *testing.T, r *rig, cases []toolCase) {
	t.Helper()
	entries := r.entries()
	if len(entries) != len(cases) {
		t.Fatalf("%d lines in the log for %d requests", len(entries), len(cases))
	}
	sum := map[string]int64{}
	for i, c := range cases {
		want := strings.Fields(c.found)
		for _, name := range want {
			sum[name]++
		}
		if !slices.Equal(want, entries[i].Stripped) {
			t.Errorf("%s: logged as stripped %q, want %q", c.name, entries[i].Stripped, want)
		}
	}
	must.Equal(t, sum, r.relay.Facts().Stripped)
}

// TestAllowExternalTools: everything passes except fields that cost more, refer to state at the
// provider or ask another model.
func TestAllowExternalTools(t *testing.T) {
	stays := map[string]bool{
		"advisor": true, "fallbacks": true, "an hour's cache": true, "another model's thoughts": true, "fast": true, "priority": true, "region": true,
		"stream": true, "stream with null options": true, "stream that shall not count": true, "other models": true,
	}
	for _, api := range toolAPIs() {
		up := newAnswers(t)
		r := newRig(t, api.provider, up.url, func(c *relay.Config) { c.AllowExternalTools = true })
		for _, c := range api.cases {
			if strings.HasPrefix(c.want, "!") {
				if !strings.HasPrefix(c.want, "!state") {
					continue // inspected less deeply: malformed parts are left to the provider
				}
			} else if !stays[c.name] {
				c.want = "="
			}
			t.Run(api.path+"/"+c.name, func(t *testing.T) { testStrip(t, r, up, api.path, c) })
		}
	}
}

// TestStrippedWasSent: the log and the facts list removed fields only for requests that were sent. For a
// refused request they have only the reason.
func TestStrippedWasSent(t *testing.T) {
	const search = `"tools":[{"type":"web_search"}]`
	up := newAnswers(t)
	r := newRig(t, relay.OpenAI, up.url, func(c *relay.Config) { c.MaxRequests = 1 })
	for _, rest := range []string{`"model":"m","background":true}`, `"model":"other"}`, `"model":"m","input":1}`, `"model":"m"}`, `"model":"m"}`} {
		text(t, r.post(responsesPath, `{`+search+`,`+rest))
	}
	sent := 0
	for _, e := range r.entries() {
		if e.Verdict == proxy.Allow {
			sent++
		}
		if want := e.Verdict == proxy.Allow; want != (len(e.Stripped) > 0) {
			t.Errorf("%+v", e)
		}
	}
	want := relay.Facts{Seen: 5, Refused: 4, Sent: 1, Succeeded: 1, Stripped: map[string]int64{"web_search": 1}}
	f := r.relay.Facts()
	got := relay.Facts{Seen: f.Seen, Refused: f.Refused, Sent: f.Sent, Succeeded: f.Succeeded, Stripped: f.Stripped}
	if diff := cmp.Diff(want, got); diff != "" || sent != 1 || len(f.External) > 0 {
		t.Errorf("sent %d, %v, facts (-want +got):\n%s", sent, f.External, diff)
	}

	refuse := newRig(t, relay.OpenAI, up.url, func(c *relay.Config) { c.RefuseExternalTools = true })
	text(t, refuse.post(responsesPath, `{"model":"m",`+search+`}`))
	e, f := refuse.entries(), refuse.relay.Facts()
	if len(e) != 1 || !slices.Equal(e[0].Stripped, []string{"web_search"}) || f.External["web_search"] != 1 || len(f.Stripped) > 0 {
		t.Errorf("%+v, %+v", e, f)
	}
}
