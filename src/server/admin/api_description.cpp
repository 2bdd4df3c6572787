// SPDX-License-Identifier: Apache-2.0
#include "server/admin/api_description.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call/body_fields.h"
#include "server/http/http_message.h"
#include "server/http/routes.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<std::string_view, std::string_view> kSummaries[] = {
    {"/health", "Whether the server is in order"},
    {"/health_generate", "As /health, with a token drawn where the engine is idle"},
    {"/livez", "Whether the process answers"},
    {"/ping", "Whether the process answers"},
    {"/readyz", "Whether requests are served"},
    {"/metrics", "Counters for Prometheus"},
    {"/get_model_info", "Facts of the model"},
    {"/model_info", "Facts of the model"},
    {"/get_server_info", "Options, memory and counters"},
    {"/server_info", "Options, memory and counters"},
    {"/get_load", "Requests and tokens under way"},
    {"/v1/loads", "Requests and tokens under way, with totals"},
    {"/get_weight_version", "The name of the weights"},
    {"/update_weight_version", "Gives the weights another name"},
    {"/update_weights_from_disk", "Exchanges the weights for those of another folder"},
    {"/load_lora_adapter", "Loads an adapter for requests to name"},
    {"/unload_lora_adapter", "Forgets a loaded adapter"},
    {"/v1/models", "The names the model is served by"},
    {"/v1/models/{model}", "One of these names"},
    {"/v1/chat/completions", "OpenAI's chat: messages in, an answer out"},
    {"/v1/completions", "OpenAI's completions: text in, its continuation out"},
    {"/v1/responses", "OpenAI's Responses"},
    {"/v1/responses/input_tokens", "The tokens of a response's prompt"},
    {"/v1/responses/{response_id}", "A response of the last hour"},
    {"/v1/responses/{response_id}/input_items", "The items that a response answers"},
    {"/v1/responses/{response_id}/cancel", "Ends a response that runs in the background"},
    {"/v1/files", "Uploads and lists files for batches"},
    {"/v1/files/{file_id}", "Facts of a file"},
    {"/v1/files/{file_id}/content", "The bytes of a file"},
    {"/v1/batches", "Starts and lists batches"},
    {"/v1/batches/{batch_id}", "A batch, with its counts"},
    {"/v1/batches/{batch_id}/cancel", "Ends a batch"},
    {"/v1/messages", "Anthropic's Messages"},
    {"/v1/messages/count_tokens", "The tokens of a prompt"},
    {"/generate", "SGLang's native route: texts or token ids, one or a batch"},
    {"/tokenize", "Text or messages to token ids"},
    {"/v1/tokenize", "Text or messages to token ids"},
    {"/detokenize", "Token ids to text"},
    {"/v1/detokenize", "Token ids to text"},
    {"/parse_function_call", "The tool calls in a text"},
    {"/separate_reasoning", "The reasoning in a text"},
    {"/api/chat", "Ollama's chat"},
    {"/api/generate", "Ollama's completion"},
    {"/api/show", "Ollama's facts of a model"},
    {"/api/tags", "Ollama's list of models"},
    {"/api/ps", "Ollama's list of loaded models"},
    {"/api/version", "The server's version"},
    {"/version", "The server's version"},
    {"/invocations", "SageMaker's: the body of a chat, a completion or /generate"},
    {"/vertex_generate", "Vertex AI's: instances in, predictions out"},
    {"/abort_request", "Ends a request by its id, or all"},
    {"/flush_cache", "Empties the prefix cache"},
    {"/reset_prefix_cache", "Empties the prefix cache, by vLLM's name"},
    {"/pause_generation", "Stops the engine between two steps"},
    {"/continue_generation", "Lets it go on"},
    {"/start_profile", "Records the engine's steps as a trace"},
    {"/stop_profile", "Ends the recording and writes the trace"},
    {"/configure_logging", "Shows or changes the level of the log, and how requests are logged"},
    {"/set_internal_state", "Changes a setting while the server runs"},
    {"/slow_down", "Waits before each step: a test aid"},
    {"/open_session", "Opens a session: a conversation over /generate kept by the server"},
    {"/close_session", "Forgets a session"},
    {"/inspect", "Live requests, memory and the prefix tree at this moment"},
    {"/dashboard/{file}", "A file of the dashboard"},
    {"/openapi.json", "This description"},
    {"/docs", "This description as a page"},
    {"/", "What the server is"},
};

// The methods in `rest`, in lower case, without HEAD.
std::vector<std::string> methods_of(std::string_view rest) {
  std::vector<std::string> methods;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(", "), rest.size());
    if (rest.substr(0, end) != "HEAD") methods.emplace_back(lower_case(rest.substr(0, end)));
    rest.remove_prefix(std::min(rest.size(), end + 2));
  }
  return methods;
}

Json error_schema() {
  const Json text_or_null = {{"type", Json::array({"string", "null"})}};
  return {{"type", "object"},
          {"required", Json::array({"error"})},
          {"properties",
           {{"error",
             {{"type", "object"},
              {"required", Json::array({"message", "type"})},
              {"properties",
               {{"message", {{"type", "string"}}},
                {"type", {{"type", "string"}}},
                {"param", text_or_null},
                {"code", text_or_null}}}}}}}};
}

// The body that an endpoint reads: the fields of all `tables`. If several have the same name, the
// first one is described.
struct DescribedBody {
  Endpoint endpoint;
  std::string_view name;
  std::vector<std::span<const Field>> tables;
};

const std::vector<DescribedBody>& described_bodies() {
  using enum Endpoint;
  static const std::vector<DescribedBody> bodies = {
      {kChat,
       "Chat",
       {Body::kModel, Body::kChatInput, Body::kCall, Body::kChat, Body::kSampling, Body::kChoices,
        Body::kLimits, Body::kTools, Body::kTemplate, Body::kChatReasoning, Body::kThinking,
        Body::kForm, Body::kScheduling}},
      {kCompletions,
       "Completion",
       {Body::kModel, Body::kCompletions, Body::kCall, Body::kSampling, Body::kChoices,
        Body::kLimits, Body::kForm, Body::kScheduling}},
      {kResponses,
       "Response",
       {Body::kModel, Body::kResponsesPrompt, Body::kResponses, Body::kCall, Body::kChat,
        Body::kSampling, Body::kLimits, Body::kTools, Body::kTemplate, Body::kChatReasoning,
        Body::kThinking, Body::kForm, Body::kScheduling}},
      {kResponseTokens,
       "ResponseTokens",
       {Body::kModel, Body::kResponsesPrompt, Body::kTools, Body::kTemplate,
        Body::kTemplateInputs}},
      {kMessages,
       "Message",
       {Body::kModel, Body::kMessagesPrompt, Body::kMessages, Body::kCall, Body::kChat,
        Body::kSampling, Body::kLimits, Body::kTools, Body::kTemplate, Body::kChatReasoning,
        Body::kThinking, Body::kForm, Body::kScheduling}},
      {kCountTokens,
       "MessageTokens",
       {Body::kModel, Body::kMessagesPrompt, Body::kTools, Body::kTemplate, Body::kTemplateInputs}},
      {kGenerate,
       "Generate",
       {Body::kModel, Body::kGenerate, Body::kThinking, Body::kPromptScheduling}},
      {kVertex, "Vertex", {Body::kVertex}},
      {kOllamaChat,
       "OllamaChat",
       {Body::kModel, Body::kOllamaChat, Body::kOllama, Body::kCall, Body::kChat, Body::kTools,
        Body::kTemplate, Body::kChatReasoning, Body::kThinking, Body::kScheduling}},
      {kOllamaGenerate,
       "OllamaGenerate",
       {Body::kModel, Body::kOllamaGenerate, Body::kOllama, Body::kCall, Body::kChat,
        Body::kTemplate, Body::kChatReasoning, Body::kThinking, Body::kScheduling}},
      {kOllamaShow, "OllamaShow", {Body::kModel, Body::kShow}},
      {kTokenize,
       "Tokenize",
       {Body::kModel, Body::kTokenize, Body::kChatInput, Body::kTools, Body::kTemplate,
        Body::kTemplateInputs}},
      {kDetokenize, "Detokenize", {Body::kModel, Body::kDetokenize}},
      {kParseFunctionCall, "ParseFunctionCall", {Body::kParse, Body::kParseCalls, Body::kTools}},
      {kSeparateReasoning, "SeparateReasoning", {Body::kParse, Body::kParseReasoning}},
      {kFiles, "Upload", {Body::kUpload}},
      {kBatches, "Batch", {Body::kBatch}},
      {kOpenSession, "OpenSession", {Body::kOpenSession}},
      {kCloseSession, "CloseSession", {Body::kCloseSession}},
      {kAbort, "Abort", {Body::kAbort}},
      {kPause, "Pause", {Body::kPause}},
      {kUpdateWeightVersion, "WeightVersion", {Body::kWeightVersion}},
      {kUpdateWeights, "UpdateWeights", {Body::kUpdateWeights}},
      {kLoadAdapter, "LoadAdapter", {Body::kLoadAdapter}},
      {kUnloadAdapter, "UnloadAdapter", {Body::kUnloadAdapter}},
      {kStartProfile, "Profile", {Body::kProfile}},
      {kConfigureLogging, "Logging", {Body::kLogging}},
      {kSetInternalState, "InternalState", {Body::kInternalState}},
      {kSlowDown, "SlowDown", {Body::kSlowDown}},
      {kInspect, "Inspect", {Body::kInspect, Body::kCacheNames}},
  };
  return bodies;
}

// The body of an endpoint; null if it reads none of its own.
const DescribedBody* find_body(Endpoint endpoint) {
  const auto found = std::ranges::find(described_bodies(), endpoint, &DescribedBody::endpoint);
  return found == described_bodies().end() ? nullptr : &*found;
}

std::vector<Field> fields_of(const DescribedBody& body) {
  std::vector<Field> fields;
  for (const std::span<const Field> table : body.tables) {
    for (const Field& field : table) {
      if (std::ranges::find(fields, field.name, &Field::name) == fields.end()) {
        fields.push_back(field);
      }
    }
  }
  return fields;
}

Json list_of(Json items) { return {{"type", "array"}, {"items", std::move(items)}}; }

Json any_of(std::initializer_list<Json> schemas) { return {{"anyOf", Json::array_t(schemas)}}; }

// The JSON Schema for a value of this type.
Json type_schema(FieldType type) {
  const Json boolean = {{"type", "boolean"}};
  const Json integer = {{"type", "integer"}};
  const Json number = {{"type", "number"}};
  const Json string = {{"type", "string"}};
  // Without this, generated clients read an object without properties as an empty one.
  const Json object = {{"type", "object"}, {"additionalProperties", true}};
  switch (type) {
    case FieldType::kBoolean:
      return boolean;
    case FieldType::kInteger:
      return integer;
    case FieldType::kNumber:
      return number;
    case FieldType::kString:
      return string;
    case FieldType::kStrings:
      return any_of({string, list_of(string)});
    case FieldType::kObject:
      return object;
    case FieldType::kObjects:
      return list_of(object);
    case FieldType::kList:
      return list_of(Json::object());
    case FieldType::kTokenIds:
      return list_of(integer);
    case FieldType::kPrompts:
      return any_of({string, list_of(string), list_of(integer), list_of(list_of(integer))});
    case FieldType::kTokenPrompts:
      return any_of({list_of(integer), list_of(list_of(integer))});
    case FieldType::kStringOrObject:
      return any_of({string, object});
    case FieldType::kStringOrList:
      return any_of({string, list_of(Json::object())});
    case FieldType::kStringOrNumber:
      return any_of({string, number});
    case FieldType::kBooleanOrString:
      return any_of({boolean, string});
    case FieldType::kFile:
      return {{"type", "string"}, {"contentMediaType", "application/octet-stream"}};
  }
  return Json::object();
}

// A bound of a range, as an integer if it is one.
Json bound(double value) {
  const auto whole = static_cast<int64_t>(value);
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

std::vector<std::string_view> choices_of(const Field& field) {
  std::vector<std::string_view> choices;
  for (std::string_view rest = field.choices; !rest.empty();) {
    const size_t end = std::min(rest.find(", "), rest.size());
    choices.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return choices;
}

Json object_schema(std::span<const Field> fields);

Json field_schema(const Field& field) {
  constexpr NumberRange kAny;
  Json schema = field.members.empty() ? type_schema(field.type) : object_schema(field.members);
  if (field.range.min != kAny.min) {
    schema[field.range.min_excluded ? "exclusiveMinimum" : "minimum"] = bound(field.range.min);
  }
  if (field.range.max != kAny.max) schema["maximum"] = bound(field.range.max);
  if (!field.choices.empty()) schema["enum"] = choices_of(field);
  if (field.per_prompt) schema = any_of({schema, list_of(schema)});
  if (!field.preset.empty()) schema["default"] = Json::parse(field.preset);
  schema["description"] = field.about;
  return schema;
}

Json object_schema(std::span<const Field> fields) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  for (const Field& field : fields) {
    schema["properties"][std::string(field)] = field_schema(field);
    if (field.required) schema["required"].push_back(field.name);
  }
  return schema;
}

std::string reference_to(std::string_view schema) {
  return fmt::format("#/components/schemas/{}", schema);
}

// The schema of a route's body. /invocations accepts the bodies of three other routes.
Json body_reference(Endpoint endpoint) {
  if (endpoint == Endpoint::kInvocations) {
    return any_of({{{"$ref", reference_to("Chat")}},
                   {{"$ref", reference_to("Completion")}},
                   {{"$ref", reference_to("Generate")}}});
  }
  const DescribedBody* const body = find_body(endpoint);
  return body == nullptr ? Json::object() : Json{{"$ref", reference_to(body->name)}};
}

// The name of an operation in generated clients, as "post_v1_models_model" for POST
// /v1/models/{model}.
std::string operation_id(std::string_view path, const std::string& method) {
  std::string id = method;
  bool at_part = true;  // true after a character that cannot be in a name
  for (const char c : path) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (is_letter && std::exchange(at_part, false)) id += '_';
    if (is_letter) id += c;
    at_part = at_part || !is_letter;
  }
  return path == "/" ? id + "_root" : id;
}

// The description of one operation of a path.
Json operation(std::string_view path, const Route& route, const std::string& method) {
  Json described = {{"summary", route_summary(path)},
                    {"operationId", operation_id(path, method)},
                    {"responses",
                     {{"200", {{"description", "Success"}}},
                      {"4XX", {{"$ref", "#/components/responses/Error"}}},
                      {"5XX", {{"$ref", "#/components/responses/Error"}}}}}};
  if (const size_t name = path.find('{'); name != std::string_view::npos) {
    described["parameters"] =
        Json::array({{{"name", path.substr(name + 1, path.find('}') - name - 1)},
                      {"in", "path"},
                      {"required", true},
                      {"schema", {{"type", "string"}}}}});
  }
  if (route.max_body_bytes != kNoBody && (method == "post" || method == "put")) {
    const char* const type =
        route.endpoint == Endpoint::kFiles ? "multipart/form-data" : "application/json";
    described["requestBody"]["content"][type]["schema"] = body_reference(route.endpoint);
  }
  described["security"] = Json::array();
  if (route.access == Access::kUser) described["security"].push_back({{"key", Json::array()}});
  if (route.access == Access::kAdmin) described["security"].push_back({{"admin", Json::array()}});
  return described;
}

std::string_view access_text(Access access) {
  switch (access) {
    case Access::kOpen:
      return "open";
    case Access::kUser:
      return "key";
    case Access::kAdmin:
      return "admin key";
  }
  return {};
}

// Escapes text for HTML.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else {
      result += c;
    }
  }
  return result;
}

std::string type_text(const Json& schema) {
  if (schema.contains("items")) {
    const std::string items = type_text(schema["items"]);
    return items.empty() ? "list" : "list of " + items;
  }
  if (!schema.contains("anyOf")) return schema.value("type", "");
  std::string text;
  for (const Json& alternative : schema["anyOf"]) {
    text += (text.empty() ? "" : " or ") + type_text(alternative);
  }
  return text;
}

// The range of a field as text. If a field also accepts one value per prompt, the first alternative
// is the single value.
std::string range_text(const Json& schema) {
  if (schema.contains("anyOf")) return range_text(schema["anyOf"][0]);
  std::string text;
  if (schema.contains("minimum")) text = fmt::format("from {}", schema["minimum"].dump());
  if (schema.contains("exclusiveMinimum")) {
    text = fmt::format("above {}", schema["exclusiveMinimum"].dump());
  }
  if (schema.contains("maximum")) text += fmt::format(" to {}", schema["maximum"].dump());
  return text;
}

// Appends table rows for the fields; the rows of an object's members follow its own.
void append_rows(std::span<const Field> fields, const std::string& prefix, std::string& page) {
  for (const Field& field : fields) {
    const Json schema = field_schema(field);
    const std::string_view choices = field.choices;
    page += fmt::format(
        "<tr><td><code>{}{}</code></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", prefix,
        field.name, type_text(schema), choices.empty() ? range_text(schema) : std::string(choices),
        field.required ? "required" : escaped(field.preset), escaped(field.about));
    append_rows(field.members, fmt::format("{}{}.", prefix, field.name), page);
  }
}

void append_body(const DescribedBody& body, std::string& page) {
  std::string paths;
  for (const auto& [path, route, allow] : route_summaries()) {
    if (route->endpoint == body.endpoint) paths += (paths.empty() ? "" : ", ") + path;
  }
  page += fmt::format(
      "<details>\n<summary><code>{}</code></summary>\n<table>\n<thead><tr>"
      "<th scope=\"col\">Field</th><th scope=\"col\">Type</th><th scope=\"col\">Values</th>"
      "<th scope=\"col\">Default</th><th scope=\"col\">What it says</th></tr></thead>\n<tbody>\n",
      paths);
  append_rows(fields_of(body), "", page);
  page += "</tbody>\n</table>\n</details>\n";
}

}  // namespace

std::string_view route_summary(std::string_view path) {
  for (const auto& [known, summary] : kSummaries) {
    if (known == path) return summary;
  }
  return {};
}

Json openapi_description(std::string_view version) {
  Json paths = Json::object();
  for (const auto& [path, route, allow] : route_summaries()) {
    for (const std::string& method : methods_of(allow)) {
      paths[path][method] = operation(path, *route, method);
    }
  }
  Json schemas = {{"Error", error_schema()}};
  for (const DescribedBody& body : described_bodies()) {
    Json schema = object_schema(fields_of(body));
    schema["description"] = "A field that is null counts as one that is absent.";
    schemas[std::string(body.name)] = std::move(schema);
  }
  const Json bearer = {{"type", "http"}, {"scheme", "bearer"}};
  const Json error = {
      {"description", "An error"},
      {"content", {{"application/json", {{"schema", {{"$ref", reference_to("Error")}}}}}}}};
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "Heddle"},
            {"version", version},
            {"license", {{"name", "Apache 2.0"}, {"identifier", "Apache-2.0"}}}}},
          {"servers", Json::array({{{"url", "."}}})},  // relative to the address of openapi.json
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", std::move(schemas)},
            {"responses", {{"Error", error}}},
            {"securitySchemes", {{"key", bearer}, {"admin", bearer}}}}}};
}

std::string docs_page(std::string_view version) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>Heddle's routes</title>\n"
      "<style>\n:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; }}\n"
      "body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}\n"
      "th, td {{ text-align: left; padding: 0.3rem 1rem 0.3rem 0; vertical-align: top; }}\n"
      "</style>\n</head>\n<body>\n<main>\n<h1>Heddle {}</h1>\n"
      "<p>The routes of this server, as <a href=\"openapi.json\">OpenAPI</a>, too. More about "
      "them is in <code>docs/server.md</code>.</p>\n"
      "<table>\n<thead><tr><th scope=\"col\">Route</th><th scope=\"col\">Methods</th>"
      "<th scope=\"col\">Asks for</th><th scope=\"col\">What it does</th></tr></thead>\n<tbody>\n",
      version);
  for (const auto& [path, route, allow] : route_summaries()) {
    page += fmt::format("<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        path, allow, access_text(route->access), route_summary(path));
  }
  page += "</tbody>\n</table>\n<h2>Fields of bodies</h2>\n";
  for (const DescribedBody& body : described_bodies()) append_body(body, page);
  return page + "</main>\n</body>\n</html>\n";
}

}  // namespace heddle::server
