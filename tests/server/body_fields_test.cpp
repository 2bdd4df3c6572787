// SPDX-License-Identifier: Apache-2.0
// /openapi.json against the readers of bodies, in both directions: what it describes is read, with
// the range that it has, and what readers name is in a table that it shows.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "server/admin/api_description.h"
#include "server/http/routes.h"
#include "server/server_fixture.h"
#include "support/test_data.h"

namespace heddle::server {
namespace {

Json object(const char* text) { return Json::parse(text); }

// Bodies with which a route answers, and which one field more makes wrong.
std::map<std::string, std::vector<Json>> plain_bodies() {
  const Json tool = object(R"({"type": "function", "function": {"name": "f"}})");
  const Json message = object(R"({"role": "user", "content": "Hi"})");
  const Json messages = {{"messages", Json::array({message})}};
  const Json with_tool = {{"messages", Json::array({message})}, {"tools", Json::array({tool})}};
  const Json chat_logprobs = {{"messages", Json::array({message})}, {"logprobs", true}};
  const Json ollama_logprobs = {
      {"messages", Json::array({message})}, {"logprobs", true}, {"stream", false}};
  return {
      {"/v1/chat/completions", {messages, with_tool, chat_logprobs}},
      {"/v1/completions", {object(R"({"prompt": "Hi"})")}},
      {"/v1/responses", {object(R"({"input": "Hi"})"), object(R"({"input": "Hi", "include":
          ["message.output_text.logprobs"]})")}},
      {"/v1/responses/input_tokens", {object(R"({"input": "Hi"})")}},
      {"/v1/messages",
       {object(R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9})"),
        object(R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9,
                   "logprobs": true})")}},
      {"/v1/messages/count_tokens",
       {object(R"({"messages": [{"role": "user", "content": "Hi"}]})")}},
      {"/generate", {object(R"({"text": "Hi"})"), object(R"({"input_ids": [1]})")}},
      {"/vertex_generate", {object(R"({"instances": [{"text": "Hi"}]})")}},
      {"/api/chat", {messages, ollama_logprobs}},
      {"/api/generate",
       {object(R"({"prompt": "Hi"})"), object(R"({"prompt": "Hi", "logprobs": true})")}},
      {"/api/show", {Json::object()}},
      {"/tokenize", {object(R"({"prompt": "Hi"})"), messages}},
      {"/detokenize", {object(R"({"tokens": [1]})")}},
      {"/parse_function_call", {{{"text", "Hi"}, {"tools", Json::array({tool})}}}},
      {"/separate_reasoning", {object(R"({"text": "Hi"})")}},
      {"/v1/batches", {object(R"({"input_file_id": "file-x", "endpoint": "/v1/completions"})")}},
      {"/open_session", {object(R"({"capacity_of_str_len": 9})")}},
      {"/close_session", {object(R"({"session_id": "s"})")}},
      {"/abort_request", {object(R"({"rid": "r"})")}},
      {"/pause_generation", {Json::object()}},
      {"/update_weight_version", {object(R"({"new_version": "v"})")}},
      {"/update_weights_from_disk", {object(R"({"model_path": "m"})")}},
      {"/load_lora_adapter", {object(R"({"lora_name": "a", "lora_path": "p"})")}},
      {"/unload_lora_adapter", {object(R"({"lora_name": "a"})")}},
      {"/start_profile", {Json::object()}},
      {"/configure_logging", {Json::object()}},
      {"/set_internal_state", {object(R"({"server_args": {"log_level": "error"}})")}},
      {"/slow_down", {Json::object()}},
      {"/inspect", {Json::object()}},
  };
}

// Whether a value of a type is never one of `schema`.
bool excludes(const Json& schema, std::string_view type) {
  if (schema.contains("anyOf")) {
    for (const Json& alternative : schema["anyOf"]) {
      if (!excludes(alternative, type)) return false;
    }
    return true;
  }
  const std::string own = schema.value("type", "");
  return !own.empty() && own != type && !(own == "number" && type == "integer");
}

// Values that the schema of a field excludes.
std::vector<Json> wrong_values(const Json& schema) {
  std::vector<Json> values;
  if (excludes(schema, "string")) values.push_back("x");
  if (excludes(schema, "integer")) values.push_back(7);
  if (excludes(schema, "boolean")) values.push_back(true);
  // Numbers in words are for a range in a list of alternatives, too.
  const Json& plain = schema.contains("anyOf") ? schema["anyOf"][0] : schema;
  if (plain.contains("minimum")) values.push_back(plain["minimum"].get<double>() - 1);
  if (plain.contains("exclusiveMinimum")) values.push_back(plain["exclusiveMinimum"]);
  if (plain.contains("maximum")) values.push_back(plain["maximum"].get<double>() + 1);
  if (plain.contains("enum")) values.push_back("no-such-choice");
  return values;
}

class BodyFieldsTest : public ServerTest {
 protected:
  void SetUp() override {
    options.profile_path = ::testing::TempDir();
    engine->mutable_options().adapters.num_slots = 2;
    start();
    description = get("/openapi.json").json();
  }

  [[nodiscard]] const Json& resolved(const Json& schema) const {
    if (!schema.contains("$ref")) return schema;
    const std::string name = schema["$ref"].get<std::string>();
    return description.at(Json::json_pointer(name.substr(1)));
  }

  // Whether the route takes the body, up to what is not there.
  [[nodiscard]] bool takes(const std::string& path, const Json& body) const {
    const int status = post(path, body).status;
    return status != 400 && status != 422;
  }

  // Every value that a field of `schema` excludes is refused, in one of the bodies at least.
  void expect_read(const std::string& path, const std::vector<Json>& bodies, const Json& schema,
                   const std::vector<std::string>& inside) {
    for (const auto& [name, field] : schema["properties"].items()) {
      SCOPED_TRACE(path + " " + name);
      EXPECT_TRUE(field.contains("description"));
      for (const Json& value : wrong_values(field)) {
        bool is_refused = false;
        for (const Json& body : bodies) {
          Json wrong = body;
          Json* at = &wrong;
          for (const std::string& outer : inside) at = &(*at)[outer];
          (*at)[name] = value;
          is_refused = is_refused || !takes(path, wrong);
        }
        EXPECT_TRUE(is_refused) << value;
      }
    }
  }

  Json description;
};

TEST_F(BodyFieldsTest, DescribedFieldsAreReadAsDescribed) {
  for (const auto& [path, bodies] : plain_bodies()) {
    for (const Json& body : bodies) {
      if (path != "/update_weights_from_disk" && path != "/pause_generation") {
        EXPECT_TRUE(takes(path, body)) << path << body << post(path, body).body;
      }
    }
    const Json& content =
        description["paths"][path]["post"]["requestBody"]["content"]["application/json"];
    const Json& schema = resolved(content["schema"]);
    expect_read(path, bodies, schema, {});
    // And the members of the objects that it has.
    const std::map<std::string, Json> beginnings = {
        {"response_format", object(R"({"type": "json_schema", "schema": true})")},
        {"session_params", object(R"({"id": "s"})")},
        {"text", object(R"({"format": {"type": "text"}})")},
        {"thinking", object(R"({"type": "enabled"})")},
        {"tool_choice", object(R"({"type": "auto"})")},
    };
    for (const auto& [name, field] : schema["properties"].items()) {
      const Json& plain = field.contains("anyOf") ? field["anyOf"][0] : field;
      if (!plain.contains("properties")) continue;
      std::vector<Json> begun = bodies;
      const auto beginning = beginnings.find(name);
      for (Json& body : begun) {
        if (!body.contains(name)) body[name] = Json::object();
        if (beginning != beginnings.end()) body[name] = beginning->second;
      }
      expect_read(path, begun, plain, {name});
    }
  }
}

TEST_F(BodyFieldsTest, ThePageShowsTypesAndRangesOfFieldsOfEachPrompt) {
  const std::string page = get("/docs").body;
  for (const char* const row :
       {"<code>input_ids</code></td><td>list of integer or list of list of integer</td>",
        "<code>top_logprobs_num</code></td><td>integer or list of integer</td><td>from 0 to ",
        "<code>logprob_start_len</code></td><td>integer or list of integer</td><td>from -1</td>",
        "<code>return_logprob</code></td><td>boolean or list of boolean</td><td></td>"}) {
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
  EXPECT_FALSE(takes("/generate", {{"input_ids", "a text"}}));
  EXPECT_FALSE(takes("/generate", {{"input_ids", {"a text"}}}));
}

TEST_F(BodyFieldsTest, WithoutARequiredFieldABodyIsRefused) {
  for (const auto& [path, bodies] : plain_bodies()) {
    const Json& content =
        description["paths"][path]["post"]["requestBody"]["content"]["application/json"];
    for (const Json& name : resolved(content["schema"]).value("required", Json::array())) {
      Json body = bodies.front();
      EXPECT_EQ(body.erase(name.get<std::string>()), 1U) << path << name;
      EXPECT_FALSE(takes(path, body)) << path << name;
    }
  }
}

// Readers name fields by their tables: a text in its place would be a field that is not described.
TEST_F(BodyFieldsTest, FieldsThatAreReadAreDescribed) {
  // These are refused whatever they ask for.
  const std::set<std::string> others = {"conversation", "prompt"};
  const std::regex read_by_text(
      R"re(\b(?:fields|inner)\.(?:boolean|integer|bits|number|strings?|object|array|find|token_ids)\(\s*"(\w+)")re");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           heddle::testing::repository_path("src/server"))) {
    const std::string file = entry.path().filename().string();
    if (entry.path().extension() != ".cpp" || file == "batch_input.cpp" ||
        file == "custom_tools.cpp") {
      continue;
    }
    std::ifstream stream(entry.path());
    const std::string source((std::istreambuf_iterator<char>(stream)),
                             std::istreambuf_iterator<char>());
    for (std::sregex_iterator hit(source.begin(), source.end(), read_by_text), end; hit != end;
         ++hit) {
      EXPECT_TRUE(others.contains((*hit)[1])) << file << ": " << (*hit)[0];
    }
  }
  // Each table is shown.
  std::ifstream stream(heddle::testing::repository_path("src/server/call/body_fields.h"));
  const std::string tables((std::istreambuf_iterator<char>(stream)),
                           std::istreambuf_iterator<char>());
  const std::string shown = description.dump();
  const std::regex row(R"re(\{(?:\.name = )?"(\w+)")re");
  int num_rows = 0;
  for (std::sregex_iterator hit(tables.begin(), tables.end(), row), end; hit != end; ++hit) {
    EXPECT_NE(shown.find("\"" + (*hit)[1].str() + "\":"), std::string::npos) << (*hit)[1];
    ++num_rows;
  }
  EXPECT_GT(num_rows, 150);
}

// Every object below `value`.
template <typename Visit>
void visit_objects(const Json& value, const Visit& visit) {
  if (value.is_object()) visit(value);
  if (!value.is_structured()) return;
  for (const Json& member : value) visit_objects(member, visit);
}

TEST_F(BodyFieldsTest, TheDescriptionIsOpenApi31) {
  for (const char* member : {"openapi", "info", "paths", "components"}) {
    EXPECT_TRUE(description.contains(member)) << member;
  }
  std::set<std::string> ids;
  for (const auto& [path, item] : description["paths"].items()) {
    EXPECT_EQ(path.front(), '/');
    for (const auto& [method, operation] : item.items()) {
      SCOPED_TRACE(method + " " + path);
      EXPECT_TRUE(ids.insert(operation["operationId"].get<std::string>()).second);
      EXPECT_TRUE(std::regex_match(operation["operationId"].get<std::string>(),
                                   std::regex("[a-z][a-z0-9_]*")));
      EXPECT_TRUE(operation["responses"].contains("200"));
      const bool has_hole = path.find('{') != std::string::npos;
      EXPECT_EQ(operation.contains("parameters"), has_hole);
      const Route* const route = find_route(path);
      if (route == nullptr || route->max_body_bytes == kNoBody || method == "get") {
        EXPECT_FALSE(operation.contains("requestBody"));
        continue;
      }
      const Json& content = operation["requestBody"]["content"];
      ASSERT_EQ(content.size(), 1U);
      const Json& schema = content.front()["schema"];
      EXPECT_TRUE(schema.contains("anyOf") || !resolved(schema)["properties"].empty());
    }
  }
  const std::set<std::string> types = {"boolean", "integer", "number", "string", "array", "object"};
  visit_objects(description, [&](const Json& value) {
    if (value.contains("$ref")) {
      EXPECT_EQ(value.size(), 1U);
      const std::string target = value["$ref"].get<std::string>();
      EXPECT_TRUE(description.contains(Json::json_pointer(target.substr(1)))) << target;
    }
    if (value.contains("type") && value["type"].is_string() && value.contains("description") &&
        types.contains(value["type"].get<std::string>())) {
      if (value.contains("default") && !value.contains("enum")) {
        EXPECT_FALSE(excludes(value, value["default"].is_boolean()          ? "boolean"
                                     : value["default"].is_number_integer() ? "integer"
                                     : value["default"].is_string()         ? "string"
                                     : value["default"].is_array()          ? "array"
                                                                            : "object"))
            << value;
      }
      EXPECT_TRUE(value["type"] != "array" || value.contains("items")) << value;
    }
    for (const char* const list : {"required", "enum", "anyOf"}) {
      EXPECT_FALSE(value.contains(list) && value[list].is_array() && value[list].empty());
    }
    if (value.contains("required") && value.contains("properties")) {
      for (const Json& name : value["required"]) {
        EXPECT_TRUE(value["properties"].contains(name.get<std::string>())) << name;
      }
    }
  });
}

}  // namespace
}  // namespace heddle::server
