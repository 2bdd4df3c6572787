// SPDX-License-Identifier: Apache-2.0
// How a server answers where requests do not say it, and budgets for reasoning.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/constraint.h>

#include "server/call/answer_form.h"
#include "server/real_engine_fixture.h"
#include "tokenizer/tokenizer.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AnswerOptionsTest : public ServerTest {
 protected:
  AnswerOptionsTest() { options.reasoning_format = parsers::ReasoningFormat::kThink; }

  [[nodiscard]] Request submitted(std::string_view path, const Json& body) const {
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return engine->submitted().back();
  }

  // The text that the request's constraint forces after this beginning of an answer; nothing where
  // there is no constraint, or it leaves a choice.
  static std::optional<std::string> forced_after(const Request& request, std::string_view begin) {
    if (request.constraint == nullptr) return std::nullopt;
    const auto state = request.constraint->start();
    for (const char byte : begin) {
      if (!state->accept(static_cast<uint8_t>(byte))) return std::nullopt;
    }
    std::string text;
    std::vector<uint32_t> mask(8);
    while (true) {
      EXPECT_TRUE(state->fill_mask(mask).ok());
      std::vector<TokenId> allowed;
      for (TokenId token = 0; token < 256; ++token) {
        if ((mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0) {
          allowed.push_back(token);
        }
      }
      if (allowed.size() != 1 || allowed[0] == 0) break;  // 0 ends an answer
      text += static_cast<char>(allowed[0]);
      EXPECT_TRUE(state->accept(allowed[0]));
    }
    return text.empty() ? std::nullopt : std::optional(text);
  }
};

TEST_F(AnswerOptionsTest, EveryApiHasABudgetForReasoning) {
  start();
  const Json messages = chat_body()["messages"];
  const std::pair<const char*, Json> bodies[] = {
      {"/v1/chat/completions", chat_body({{"max_thinking_tokens", 3}})},
      {"/v1/chat/completions", chat_body({{"reasoning", {{"max_tokens", 3}}}})},
      {"/v1/chat/completions", chat_body({{"chat_template_kwargs", {{"thinking_budget", 3}}}})},
      {"/v1/chat/completions",
       chat_body({{"custom_params", {{"thinking_budget", 3}}}, {"max_thinking_tokens", 9}})},
      {"/v1/responses", {{"input", "Hi"}, {"reasoning", {{"max_tokens", 3}}}}},
      {"/v1/responses",
       {{"input", "Hi"}, {"reasoning", {{"max_tokens", 9}}}, {"max_thinking_tokens", 3}}},
      {"/v1/messages",
       {{"messages", messages},
        {"max_tokens", 50},
        {"max_thinking_tokens", 3},
        {"thinking", {{"type", "enabled"}, {"budget_tokens", 9}}}}},
      {"/v1/messages",
       {{"messages", messages},
        {"max_tokens", 50},
        {"reasoning", {{"max_tokens", 3}}},
        {"thinking", {{"type", "disabled"}}}}},
      {"/v1/messages",
       {{"messages", messages},
        {"max_tokens", 50},
        {"thinking", {{"type", "enabled"}, {"budget_tokens", 3}}}}},
      {"/generate", {{"text", "Hi"}, {"max_thinking_tokens", 3}}},
      {"/generate",
       {{"text", "Hi"}, {"sampling_params", {{"custom_params", {{"thinking_budget", 3}}}}}}}};
  for (const auto& [path, body] : bodies) {
    SCOPED_TRACE(path + body.dump());
    const Request request = submitted(path, body);
    EXPECT_EQ(forced_after(request, "<think>abc"), "</think>");
    EXPECT_EQ(forced_after(request, "<think>ab"), std::nullopt);
    EXPECT_EQ(forced_after(request, "abcdef"), std::nullopt) << "it does not reason";
  }
  EXPECT_EQ(submitted("/v1/chat/completions", chat_body()).constraint, nullptr);
  EXPECT_EQ(submitted("/v1/messages", {{"messages", messages}, {"max_tokens", 50}}).constraint,
            nullptr);
}

TEST_F(AnswerOptionsTest, TheServersBudgetIsTheMost) {
  options.answers.max_thinking_tokens = 4;
  options.answers.thinking_budget_message = "Enough.";
  start();
  EXPECT_EQ(forced_after(submitted("/v1/chat/completions", chat_body()), "<think>abcd"),
            "Enough.</think>");
  const Json more = chat_body({{"max_thinking_tokens", 100}});
  EXPECT_EQ(forced_after(submitted("/v1/chat/completions", more), "<think>abcd"),
            "Enough.</think>");
  const Json less = chat_body({{"max_thinking_tokens", 0}});
  EXPECT_EQ(forced_after(submitted("/v1/chat/completions", less), "<think>"), "Enough.</think>");
}

TEST(BudgetMessageTest, MayEndWithTheTagThatIsWrittenAnyway) {
  for (const char* const message : {"Enough.", "Enough.</think>", "Enough.[/THINK]\n\n"}) {
    EXPECT_EQ(read_budget_message(message).value(), "Enough.") << message;
  }
  const auto refused = read_budget_message("Enough.</think>\n\nSo");
  EXPECT_THAT(refused.status().message(), HasSubstr("goes on behind `</think>`"));
}

TEST_F(AnswerOptionsTest, AFormFollowsReasoningWithABudget) {
  start();
  const Request request = submitted("/v1/chat/completions",
                                    chat_body({{"max_thinking_tokens", 2}, {"regex", "yes|no"}}));
  EXPECT_EQ(forced_after(request, "<think>ab"), "</think>");
  EXPECT_EQ(forced_after(request, "<think>ab</think>y"), "es");
  EXPECT_EQ(forced_after(request, "n"), "o");
}

TEST_F(AnswerOptionsTest, ABudgetLeavesACallInsideReasoningWhole) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  start();
  const std::string mark = "<think>a<tool_call>";  // 12 tokens of reasoning
  Json body = chat_body({{"max_thinking_tokens", 12}});
  EXPECT_EQ(forced_after(submitted("/v1/chat/completions", body), mark), "</think>");
  body["tools"] = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  const Request request = submitted("/v1/chat/completions", body);
  EXPECT_EQ(forced_after(request, mark), std::nullopt);
  EXPECT_EQ(forced_after(request, mark + "x"), std::nullopt) << "it may be f(x=1) of a tool";
  EXPECT_EQ(forced_after(request, mark + "x "), "</think>") << "it is no call";
  EXPECT_EQ(forced_after(request, mark + R"({"name": "f", "arguments": {"x": 1}})"), std::nullopt);
}

TEST_F(AnswerOptionsTest, GenerateReasonsBeforeAFormIfAskedTo) {
  start();
  Json body = {
      {"text", "Hi"}, {"max_thinking_tokens", 2}, {"sampling_params", {{"regex", "yes|no"}}}};
  EXPECT_EQ(forced_after(submitted("/generate", body), "n"), "o");
  EXPECT_EQ(forced_after(submitted("/generate", body), "<think>"), std::nullopt);
  body["require_reasoning"] = true;
  const Request request = submitted("/generate", body);
  EXPECT_EQ(forced_after(request, "<think>ab"), "</think>");
  EXPECT_EQ(forced_after(request, "<think>ab</think>y"), "es");
}

TEST_F(AnswerOptionsTest, FormatsWithoutAClosingTagHaveNoBudget) {
  options.reasoning_format = parsers::ReasoningFormat::kHarmony;
  start();
  const Reply refused = post("/v1/chat/completions", chat_body({{"max_thinking_tokens", 3}}));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(error_of(refused)["param"], "max_thinking_tokens");
  // Anthropic's clients send one to every model that reasons.
  Json body = {{"messages", chat_body()["messages"]},
               {"max_tokens", 50},
               {"thinking", {{"type", "enabled"}, {"budget_tokens", 3}}}};
  EXPECT_EQ(post("/v1/messages", body).status, 200);
  body["max_thinking_tokens"] = 3;
  EXPECT_EQ(post("/v1/messages", body).status, 400);
}

TEST_F(AnswerOptionsTest, AModelWithoutReasoningKeepsToEveryBudget) {
  options.reasoning_format = parsers::ReasoningFormat::kNone;
  start();
  const Request request =
      submitted("/v1/chat/completions", chat_body({{"max_thinking_tokens", 0}}));
  EXPECT_EQ(request.constraint, nullptr);
}

TEST_F(AnswerOptionsTest, ReasoningHasTheNameThatIsWanted) {
  engine->script = [](const Request&) { return answer_events({"<think>Hm", "</think>", "Yes"}); };
  for (const auto& [field, has_long, has_short] :
       {std::tuple{ReasoningField::kReasoningContent, true, false},
        {ReasoningField::kReasoning, false, true},
        {ReasoningField::kBoth, true, true}}) {
    options.answers.reasoning_field = field;
    auto next = std::make_unique<FakeEngine>();
    next->script = engine->script;
    start();
    const Json message = post("/v1/chat/completions", chat_body()).json()["choices"][0]["message"];
    EXPECT_EQ(message.value("reasoning_content", ""), has_long ? "Hm" : "");
    EXPECT_EQ(message.value("reasoning", ""), has_short ? "Hm" : "");
    const Reply stream = post("/v1/chat/completions", chat_body({{"stream", true}}));
    EXPECT_EQ(stream.body.find(R"("reasoning_content":"Hm")") != std::string::npos, has_long);
    EXPECT_EQ(stream.body.find(R"("reasoning":"Hm")") != std::string::npos, has_short);
    server = nullptr;
    engine_to_be = std::move(next);
    engine = engine_to_be.get();
  }
}

TEST_F(AnswerOptionsTest, StreamsOfGenerateTellWhatIsNew) {
  engine->script = [](const Request&) { return answer_events({"He", "llo", " there"}); };
  options.answers.stream_increments = true;
  start();
  std::vector<std::string> texts;
  std::vector<TokenId> ids;
  for (const std::string& event : post("/generate", {{"text", "a"}, {"stream", true}}).events()) {
    if (event == "[DONE]") continue;
    const Json chunk = Json::parse(event);
    texts.push_back(chunk["text"]);
    for (const Json& id : chunk["output_ids"]) ids.push_back(id);
  }
  EXPECT_THAT(texts, ElementsAre("He", "llo", " there", ""));
  EXPECT_THAT(ids, ElementsAre(1, 2, 3, 151645));
}

TEST_F(AnswerOptionsTest, EventsHaveTheServersTokensUnlessARequestSaysOtherwise) {
  engine->script = [](const Request&) { return answer_events({"a", "b", "c", "d"}); };
  options.answers.stream_interval = 2;
  start();
  const auto num_events = [this](const Json& extra) {
    Json body = {{"prompt", "a"}, {"stream", true}};
    body.update(extra);
    return post("/v1/completions", body).events().size();
  };
  EXPECT_EQ(num_events(Json::object()), 4u) << "ab, cd, the end, [DONE]";
  EXPECT_EQ(num_events({{"stream_interval", 1}}), 6u);
}

TEST_F(AnswerOptionsTest, SamplingIsTheModelsThenTheServersThenTheRequests) {
  engine->mutable_model_info().default_sampling.temperature = 0.6f;
  engine->mutable_model_info().default_sampling.top_k = 20;
  options.answers.preferred_sampling_params = R"({"top_k": 7, "min_p": 0.5})";
  start();
  const SamplingParams sampling =
      submitted("/v1/completions", {{"prompt", "a"}, {"min_p", 0.25}}).sampling;
  EXPECT_EQ(sampling.temperature, 0.6f);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.min_p, 0.25f);
  EXPECT_EQ(get("/get_model_info").json()["preferred_sampling_params"],
            Json({{"top_k", 7}, {"min_p", 0.5}}));
  EXPECT_EQ(get("/get_model_info").json()["has_reasoning_parser"], true);
  EXPECT_EQ(get("/get_model_info").json()["has_reasoning_switch"], true);
  EXPECT_EQ(get("/get_model_info").json()["default_sampling"], Json({{"temperature", 0.6},
                                                                     {"top_p", 1.0},
                                                                     {"top_k", 7},
                                                                     {"min_p", 0.5},
                                                                     {"frequency_penalty", 0.0},
                                                                     {"presence_penalty", 0.0},
                                                                     {"repetition_penalty", 1.0}}));
}

TEST_F(AnswerOptionsTest, TheModelsSamplingCanBeLeftAside) {
  engine->mutable_model_info().default_sampling.temperature = 0.6f;
  options.answers.use_generation_config = false;
  start();
  EXPECT_EQ(submitted("/v1/completions", {{"prompt", "a"}}).sampling.temperature, 1.0f);
}

TEST_F(AnswerOptionsTest, ConstrainedJsonCanDoWithoutBlanks) {
  options.answers.json_whitespace = false;
  start();
  const Request request =
      submitted("/v1/completions", {{"prompt", "a"}, {"json_schema", R"({"const": [1, 2]})"}});
  EXPECT_EQ(forced_after(request, "["), "1,2]");
}

// Calls a function whenever the bytes of a token are asked for.
class CallingTokenizer final : public tokenizer::Tokenizer {
 public:
  std::function<void()> on_bytes;

  void append_token_bytes(TokenId, bool, std::string& out) const override {
    on_bytes();
    out += 'a';
  }

  [[nodiscard]] bool strips_leading_space() const override { return false; }

  [[nodiscard]] std::optional<TokenId> token_to_id(std::string_view) const override { return {}; }

  [[nodiscard]] std::string id_to_token(TokenId) const override { return "a"; }

  [[nodiscard]] bool is_special(TokenId) const override { return false; }

  [[nodiscard]] int64_t vocab_size() const override { return 1; }

 protected:
  [[nodiscard]] Result<bool> encode_valid(std::string_view, size_t, tokenizer::EncodeOptions,
                                          tokenizer::CancellationPoll&,
                                          std::vector<TokenId>&) const override {
    return true;
  }
};

TEST(ModelCodecTest, MetricsDoNotWaitForTheVocabulary) {
  CallingTokenizer tokenizer;
  const auto codec = make_model_codec(::testing::TempDir(), tokenizer, {});
  ASSERT_TRUE(codec.ok()) << codec.status().to_string();
  int num_calls = 0;
  tokenizer.on_bytes = [&] {
    EXPECT_EQ((*codec)->metrics_text(), "");
    ++num_calls;
  };
  const auto form = (*codec)->compile({.kind = grammar::GrammarKind::kRegex, .text = "a"}, {});
  EXPECT_TRUE(form.ok()) << form.status().to_string();
  EXPECT_EQ(num_calls, 1);
  EXPECT_NE((*codec)->metrics_text(), "");
}

using RealThinkingTest = RealEngineFixture;

TEST_F(RealThinkingTest, TheModelGoesOnBehindReasoningThatWasEnded) {
  options.reasoning_format = parsers::ReasoningFormat::kThinkFromStart;
  start_real();
  const Json answer =
      post("/v1/chat/completions",
           chat_body({{"max_thinking_tokens", 5}, {"max_tokens", 60}, {"ignore_eos", true}}))
          .json();
  const Json& message = answer["choices"][0]["message"];
  EXPECT_FALSE(message["reasoning_content"].is_null()) << answer;
  EXPECT_GT(message["content"].get<std::string>().size(), 10u) << answer;
  const int64_t reasoning_tokens = answer["usage"]["reasoning_tokens"];
  EXPECT_GT(reasoning_tokens, 5) << "and the closing tag's";
  EXPECT_LT(reasoning_tokens, 5 + 10);
}

}  // namespace
}  // namespace heddle::server
