// SPDX-License-Identifier: Apache-2.0
#include "server/api_description.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/http_message.h"
#include "server/routes.h"

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
    {"/v1/models", "The names the model is served by"},
    {"/v1/models/{model}", "One of these names"},
    {"/v1/chat/completions", "OpenAI's chat: messages in, an answer out"},
    {"/v1/completions", "OpenAI's completions: text in, its continuation out"},
    {"/v1/responses", "OpenAI's Responses"},
    {"/v1/responses/input_tokens", "The tokens of a response's prompt"},
    {"/v1/responses/{response_id}", "A response of the last hour; its input with /input_items"},
    {"/v1/files", "Uploads and lists files for batches"},
    {"/v1/files/{file_id}", "A file; its bytes with /content"},
    {"/v1/batches", "Starts and lists batches"},
    {"/v1/batches/{batch_id}", "A batch; ends it with /cancel"},
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

std::vector<std::string> methods_of(const Route& route) {
  std::vector<std::string> methods;
  std::string_view rest = route.allow;
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

// One operation of a path.
Json operation(std::string_view path, const Route& route, const std::string& method) {
  Json described = {
      {"summary", route_summary(path)},
      {"operationId", fmt::format("{} {}", method, path)},
      {"responses",
       {{"200", {{"description", "Success"}}},
        {"default",
         {{"description", "An error"},
          {"content",
           {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}}}}}};
  if (const size_t name = path.find('{'); name != std::string_view::npos) {
    described["parameters"] = Json::array({{{"name", path.substr(name + 1, path.size() - name - 2)},
                                            {"in", "path"},
                                            {"required", true},
                                            {"schema", {{"type", "string"}}}}});
  }
  if (route.max_body_bytes != kNoBody && (method == "post" || method == "put")) {
    const char* const type =
        route.endpoint == Endpoint::kFiles ? "multipart/form-data" : "application/json";
    described["requestBody"]["content"][type]["schema"]["type"] = "object";
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

}  // namespace

std::string_view route_summary(std::string_view path) {
  for (const auto& [known, summary] : kSummaries) {
    if (known == path) return summary;
  }
  return {};
}

Json openapi_description(std::string_view version) {
  Json paths = Json::object();
  for (const auto& [path, route] : route_summaries()) {
    for (const std::string& method : methods_of(*route)) {
      paths[path][method] = operation(path, *route, method);
    }
  }
  const Json bearer = {{"type", "http"}, {"scheme", "bearer"}};
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "Heddle"}, {"version", version}}},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", {{"Error", error_schema()}}},
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
      "<p>The routes of this server, as <a href=\"openapi.json\">OpenAPI</a>, too. Which fields "
      "they take is in <code>docs/server.md</code>.</p>\n"
      "<table>\n<thead><tr><th scope=\"col\">Route</th><th scope=\"col\">Methods</th>"
      "<th scope=\"col\">Asks for</th><th scope=\"col\">What it does</th></tr></thead>\n<tbody>\n",
      version);
  for (const auto& [path, route] : route_summaries()) {
    page += fmt::format("<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        path, route->allow, access_text(route->access), route_summary(path));
  }
  return page + "</tbody>\n</table>\n</main>\n</body>\n</html>\n";
}

}  // namespace heddle::server
