// SPDX-License-Identifier: Apache-2.0
// Answers held to forms, from the request's field to the text, with a real engine and the small
// model, which by itself would write nothing of the kind.
#include <set>
#include <string>
#include <vector>

#include "core/compiler.h"
#include "grammar/testing/schema_validator.h"
#include "server/real_engine_fixture.h"

namespace heddle::server {
namespace {

using grammar::testing::is_valid;
using ::testing::AnyOf;
using ::testing::MatchesRegex;

class StructuredOutputTest : public RealEngineFixture {
 protected:
  StructuredOutputTest() {
    engine_options.max_running_requests = 8;
    engine_options.max_total_tokens = 8192;
    engine_options.max_queued_requests = 64;
  }

  [[nodiscard]] Json chat(const Json& fields) const {
    const Reply reply = post("/v1/chat/completions", chat_body(fields));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }

  // The text of an answer to a prompt that is no chat.
  [[nodiscard]] Json complete(const Json& fields) const {
    Json body = {{"prompt", "Once upon a time"}, {"max_tokens", 200}};
    body.update(fields);
    const Reply reply = post("/v1/completions", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json()["choices"][0];
  }

  static Json format_of(const Json& schema) {
    return {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}};
  }
};

// Every document of these schemas is short.
const char* const kSchemas[] = {
    R"({"type": "object", "properties": {
      "name": {"type": "string", "maxLength": 12}, "alive": {"type": "boolean"},
      "age": {"type": "integer", "minimum": -3, "maximum": 130},
      "tags": {"type": "array", "maxItems": 3, "items": {"enum": ["a \"b\"", "grün", 7, null]}}},
      "required": ["name", "age"], "additionalProperties": false})",
    R"({"type": "array", "minItems": 2, "maxItems": 3, "items": {
      "anyOf": [{"type": "object", "properties": {"schlüssel": {"type": "string",
        "pattern": "^[A-Z][a-z]{1,3}$"}}, "required": ["schlüssel"], "additionalProperties": false},
        {"const": {"deep": [1, {"er": "\n"}]}}, {"type": "number", "exclusiveMinimum": 0.5,
        "maximum": 2}]}})",
    R"({"type": "object", "properties": {"node": {"$ref": "#/$defs/node"}}, "required": ["node"],
      "additionalProperties": false, "$defs": {"node": {"type": "object", "properties": {
        "id": {"type": "string", "format": "uuid"},
        "left": {"anyOf": [{"type": "null"}, {"type": "null"}, {"$ref": "#/$defs/leaf"}]}},
        "required": ["id", "left"], "additionalProperties": false},
      "leaf": {"type": "array", "prefixItems": [{"type": "string", "minLength": 1, "maxLength": 4},
        {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 50}], "minItems": 2,
        "items": false}}})"};

// The small model's template knows no tools.
TEST_F(StructuredOutputTest, ModelsWithoutAFormatOfCallsCallAToolWhereTheyMust) {
  start_real();
  const Json schema = Json::parse(R"({"type": "object", "required": ["city", "days"], "properties":
      {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 0,
       "maximum": 9}}, "additionalProperties": false})");
  const Json tool = {{"type", "function"},
                     {"function", {{"name", "weather"}, {"parameters", schema}}}};
  const Json named = {{"type", "function"}, {"function", {{"name", "weather"}}}};
  const Json history = Json::parse(R"([{"role": "user", "content": "Oslo?"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
        "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\", \"days\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "Rain."},
      {"role": "user", "content": "And Rome?"}])");
  int64_t tokens_with_tools = 0;
  for (const Json& choice : {Json("required"), named}) {
    for (int seed = 0; seed < 3; ++seed) {
      const Json answer = chat({{"tools", {tool}},
                                {"tool_choice", choice},
                                {"temperature", 1},
                                {"seed", seed},
                                {"max_tokens", 300}})["choices"][0];
      ASSERT_EQ(answer["finish_reason"], "tool_calls") << answer;
      EXPECT_TRUE(answer["message"]["content"].is_null());
      ASSERT_EQ(answer["message"]["tool_calls"].size(), 1u);
      const Json& call = answer["message"]["tool_calls"][0]["function"];
      EXPECT_EQ(call["name"], "weather");
      const Json arguments = Json::parse(call["arguments"].get<std::string>());
      EXPECT_TRUE(is_valid(arguments, schema, schema)) << arguments;
    }
    const Json longer = chat(
        {{"messages", history}, {"tools", {tool}}, {"tool_choice", choice}, {"max_tokens", 300}});
    EXPECT_EQ(longer["choices"][0]["finish_reason"], "tool_calls");
    tokens_with_tools = longer["usage"]["prompt_tokens"].get<int64_t>();
  }
  const Json after = chat({{"messages", history}, {"max_tokens", 1}});
  EXPECT_LT(after["usage"]["prompt_tokens"].get<int64_t>(), tokens_with_tools)
      << "no tools are listed";
  Json without = history;
  without.erase(1);
  EXPECT_GT(
      after["usage"]["prompt_tokens"].get<int64_t>(),
      chat({{"messages", without}, {"max_tokens", 1}})["usage"]["prompt_tokens"].get<int64_t>())
      << "the call is a part of the prompt";
}

TEST_F(StructuredOutputTest, AnswersToSchemasParseAndAreValidWhateverIsDrawn) {
  start_real();
  constexpr int kSeeds = HEDDLE_SANITIZED ? 1 : 4;
  for (const char* const text : kSchemas) {
    SCOPED_TRACE(text);
    const Json schema = Json::parse(text);
    std::set<std::string> distinct;
    int num_complete = 0;
    for (const double temperature : {0.0, 1.0, 4.0}) {
      for (int seed = 0; seed < (temperature > 0 ? kSeeds : 1); ++seed) {
        const Json answer = chat({{"response_format", format_of(schema)},
                                  {"temperature", temperature},
                                  {"seed", seed},
                                  {"n", 8},
                                  {"max_tokens", 400}});
        for (const Json& choice : answer["choices"]) {
          const auto content = choice["message"]["content"].get<std::string>();
          // Only blanks and line breaks are without a bound.
          if (choice["finish_reason"] == "length") continue;
          EXPECT_EQ(choice["finish_reason"], "stop");
          const Json document = Json::parse(content, nullptr, false);
          ASSERT_FALSE(document.is_discarded()) << content;
          EXPECT_TRUE(is_valid(document, schema, schema)) << content;
          ++num_complete;
          distinct.insert(content);
        }
      }
    }
    EXPECT_GE(num_complete, 16 * kSeeds) << "of " << 16 * kSeeds + 8;
    EXPECT_GE(distinct.size(), size_t{4} * kSeeds);
  }
}

TEST_F(StructuredOutputTest, JsonObjectsAreObjects) {
  start_real();
  const Json answer = chat({{"response_format", {{"type", "json_object"}}},
                            {"seed", 3},
                            {"n", 8},
                            {"temperature", 1},
                            {"max_tokens", 200}});
  for (const Json& choice : answer["choices"]) {
    const auto content = choice["message"]["content"].get<std::string>();
    EXPECT_TRUE(content.starts_with("{")) << content;
    if (choice["finish_reason"] != "stop") continue;
    EXPECT_TRUE(Json::parse(content, nullptr, false).is_object()) << content;
  }
}

TEST_F(StructuredOutputTest, AStreamTellsTheSameAndEveryChoiceHasAFormOfItsOwn) {
  start_real();
  Json fields = {{"response_format", format_of(Json::parse(kSchemas[0]))},
                 {"temperature", 1},
                 {"seed", 11},
                 {"n", 3},
                 {"max_tokens", 300}};
  const Json whole = chat(fields);
  fields["stream"] = true;
  const Reply reply = post("/v1/chat/completions", chat_body(fields));
  ASSERT_EQ(reply.status, 200) << reply.body;
  std::vector<std::string> texts(3);
  for (const std::string& event : reply.events()) {
    if (event == "[DONE]") continue;
    const Json chunk = Json::parse(event);
    for (const Json& choice : chunk["choices"]) {
      texts[choice["index"].get<size_t>()] += choice["delta"].value("content", "");
    }
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i], whole["choices"][i]["message"]["content"].get<std::string>());
  }
  EXPECT_NE(texts[0], texts[1]);
}

TEST_F(StructuredOutputTest, TextsKeepToARegexAndToAGrammar) {
  start_real();
  for (int seed = 0; seed < 10; ++seed) {
    const Json date = complete({{"regex", "20[0-9]{2}-[01][0-9]"}, {"seed", seed}});
    EXPECT_THAT(date["text"].get<std::string>(), MatchesRegex("20[0-9]{2}-[01][0-9]"));
    EXPECT_EQ(date["finish_reason"], "stop");
    const Json sum =
        complete({{"ebnf", "root ::= n (\"+\" n){1,3} \"=\"\nn ::= [1-9] | \"(\" root \")\""},
                  {"seed", seed}});
    if (sum["finish_reason"] == "stop") {
      EXPECT_THAT(sum["text"].get<std::string>(), MatchesRegex("[1-9+()=]+="));
    }
    const Json choice = complete({{"guided_choice", {"yes", "no", "Müßiggang"}}, {"seed", seed}});
    EXPECT_THAT(choice["text"].get<std::string>(), AnyOf("yes", "no", "Müßiggang"));
    const Reply native =
        post("/generate",
             {{"text", "It is"},
              {"sampling_params",
               {{"json_schema", R"({"enum": ["hot", "cold"]})"}, {"sampling_seed", seed}}}});
    EXPECT_THAT(native.json()["text"].get<std::string>(), AnyOf("\"hot\"", "\"cold\""));
    EXPECT_EQ(native.json()["meta_info"]["finish_reason"]["type"], "stop");
  }
}

TEST_F(StructuredOutputTest, LimitsAndStopTextsEndAnAnswerAsTheyEndOthers) {
  start_real();
  const Json cut = complete({{"regex", "[a-z]{500}"}, {"max_tokens", 5}});
  EXPECT_EQ(cut["finish_reason"], "length");
  EXPECT_THAT(cut["text"].get<std::string>(), MatchesRegex("[a-z]+"));

  const Json stopped = complete({{"regex", "[ab]{5}X[0-9]{9}"}, {"stop", {"X"}}});
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_THAT(stopped["text"].get<std::string>(), MatchesRegex("[ab]{5}"));

  // The end waits for min_tokens where the form can go on, and does not where it cannot.
  const Json patient = complete({{"regex", "(a|b)*"}, {"min_tokens", 30}, {"max_tokens", 60}});
  EXPECT_GE(patient["text"].get<std::string>().size(), 30u);
  for (const char* const field : {"min_tokens", "ignore_eos"}) {
    Json fields = {{"regex", "yes|no"}, {"max_tokens", 50}};
    if (std::string_view(field) == "min_tokens") {
      fields[field] = 40;
    } else {
      fields[field] = true;
    }
    const Json over = complete(fields);
    EXPECT_EQ(over["finish_reason"], "stop") << field;
    EXPECT_THAT(over["text"].get<std::string>(), AnyOf("yes", "no"));
  }
}

TEST_F(StructuredOutputTest, AnswersWithoutAFormAreTheSameBesideOthers) {
  start_real();
  const Json alone = complete({{"temperature", 0}, {"max_tokens", 40}});
  HttpClient form(server->port());
  form.send_request(
      "POST", "/v1/completions",
      Json{{"prompt", "a"}, {"regex", "[a-z]{300}"}, {"max_tokens", 400}, {"n", 4}}.dump());
  EXPECT_EQ(complete({{"temperature", 0}, {"max_tokens", 40}})["text"], alone["text"]);
  const Json held = form.read_reply().json();
  for (const Json& choice : held["choices"]) {
    EXPECT_EQ(choice["text"].get<std::string>().size(), 300u);
  }
}

TEST_F(StructuredOutputTest, AClientThatLeavesFreesWhatItsFormHeld) {
  start_real();
  const auto used = [this] {
    const Json info = get("/get_server_info").json();
    return info["internal_states"][0]["num_running_reqs"].get<int>();
  };
  for (const bool hard : {false, true}) {
    HttpClient client(server->port());
    client.send_request("POST", "/v1/completions",
                        Json{{"prompt", "a"},
                             {"stream", true},
                             {"n", 4},
                             {"regex", "[a-z]+(, [a-z]+)*"},
                             {"min_tokens", 1000},
                             {"max_tokens", 1000}}
                            .dump());
    ASSERT_TRUE(client.read_until("data: "));
    hard ? client.reset() : client.close();
    EXPECT_TRUE(eventually([&] { return used() == 0; }));
  }
  EXPECT_THAT(complete({{"regex", "yes|no"}})["text"].get<std::string>(), AnyOf("yes", "no"));
}

TEST_F(StructuredOutputTest, ForcedCallsAreReadBackAsCalls) {
  const Json tools = Json::parse(R"([
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object",
      "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["n"]}}},
    {"type": "function", "function": {"name": "say", "strict": true, "parameters": {"type": "object",
      "properties": {"text": {"type": "string", "maxLength": 8}}, "required": ["text"],
      "additionalProperties": false}}}])");
  using parsers::ToolCallFormat;
  constexpr int kChoices = HEDDLE_SANITIZED ? 2 : 6;
  for (const ToolCallFormat format :
       {ToolCallFormat::kQwen, ToolCallFormat::kLlama3, ToolCallFormat::kMistral,
        ToolCallFormat::kDeepseekV3, ToolCallFormat::kKimiK2, ToolCallFormat::kQwen3Coder,
        ToolCallFormat::kGlm, ToolCallFormat::kDeepseekV32, ToolCallFormat::kPythonic,
        ToolCallFormat::kGemma4, ToolCallFormat::kMinimaxM2, ToolCallFormat::kSeedOss,
        ToolCallFormat::kLfm2, ToolCallFormat::kGranite, ToolCallFormat::kCohere}) {
    SCOPED_TRACE(parsers::to_string(format));
    options.tool_call_format = format;
    start_real();
    // Between tags a text may have any length.
    const bool has_tags = format == ToolCallFormat::kQwen3Coder || format == ToolCallFormat::kGlm ||
                          format == ToolCallFormat::kDeepseekV32 ||
                          format == ToolCallFormat::kMinimaxM2 ||
                          format == ToolCallFormat::kSeedOss;
    const Json offered = has_tags ? Json::array({tools[0]}) : tools;
    int num_calls = 0;
    const std::string wanted = has_tags ? "add" : "say";
    for (const bool named : {false, true}) {
      Json choice = "required";
      if (named) choice = {{"type", "function"}, {"function", {{"name", wanted}}}};
      const Json answer = chat({{"tools", offered},
                                {"tool_choice", choice},
                                {"parallel_tool_calls", false},
                                {"n", kChoices},
                                {"seed", 5},
                                {"temperature", 1},
                                {"max_tokens", 300}});
      for (const Json& each : answer["choices"]) {
        if (each["finish_reason"] == "length") continue;
        ++num_calls;
        EXPECT_EQ(each["finish_reason"], "tool_calls") << each;
        ASSERT_EQ(each["message"]["tool_calls"].size(), 1u) << each;
        const Json& function = each["message"]["tool_calls"][0]["function"];
        const bool is_say = function["name"] == "say";
        if (named) {
          EXPECT_EQ(function["name"].get<std::string>(), wanted) << each;
        }
        const Json& schema = tools[is_say ? 1 : 0]["function"]["parameters"];
        const Json arguments =
            Json::parse(function["arguments"].get<std::string>(), nullptr, false);
        EXPECT_TRUE(is_valid(arguments, schema, schema)) << each;
      }
    }
    EXPECT_GE(num_calls, kChoices + kChoices / 3) << "of " << 2 * kChoices;
    server.reset();
  }
}

// This model hardly ever ends reasoning: a bias has it begin with `commentary`.
TEST_F(StructuredOutputTest, ForcedCallsOnAChannelAreReadBackAsCalls) {
  options.tool_call_format = parsers::ToolCallFormat::kHarmony;
  options.reasoning_format = parsers::ReasoningFormat::kHarmony;
  start_real();
  const Json schema = Json::parse(R"({"type": "object", "required": ["text"],
    "properties": {"text": {"type": "string", "maxLength": 8}}, "additionalProperties": false})");
  const Json tools = {
      {{"type", "function"}, {"function", {{"name", "say"}, {"parameters", schema}}}}};
  const Json token = post("/tokenize", {{"prompt", "c"}}).json()["tokens"][0];
  const Json fields = {{"tools", tools},
                       {"tool_choice", "required"},
                       {"n", 8},
                       {"seed", 5},
                       {"temperature", 1},
                       {"max_tokens", 300},
                       {"logit_bias", {{token.dump(), 9}}}};
  int num_calls = 0;
  const Json answer = chat(fields);
  for (const Json& choice : answer["choices"]) {
    if (choice["finish_reason"] == "length") continue;
    ++num_calls;
    EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
    const Json& function = choice["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(function["name"], "say");
    const Json arguments = Json::parse(function["arguments"].get<std::string>(), nullptr, false);
    EXPECT_TRUE(is_valid(arguments, schema, schema)) << choice;
  }
  EXPECT_GE(num_calls, 6) << answer;
}

}  // namespace
}  // namespace heddle::server
