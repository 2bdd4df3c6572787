// SPDX-License-Identifier: Apache-2.0
// Answers of many tokens with many logprobs: their memory, the size of what is written at once, and
// the limit. And bodies of many bytes for /tokenize.
#include "server/chat_completions.h"
#include "server/completions.h"
#include "server/json_text.h"
#include "server/native_generate.h"
#include "server/server_fixture.h"
#include "server/tokenize.h"
#include "support/allocation_count.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int32_t kNumTop = 20;

// An event of one token with 20 alternatives.
RequestEvent event_of(int64_t number, bool last) {
  RequestEvent event;
  event.tokens = {static_cast<TokenId>('a' + number % 26)};
  event.text = std::string(1, static_cast<char>(event.tokens[0]));
  TokenLogprob entry{.token = event.tokens[0], .logprob = -0.1f, .top = {}};
  for (int32_t i = 0; i < kNumTop; ++i) {
    entry.top.emplace_back(static_cast<TokenId>(1000 + i), -0.1f - static_cast<float>(i) / 7);
  }
  event.logprobs.push_back(std::move(entry));
  event.completion_tokens = number + 1;
  if (last) event.finish = finish_of(FinishReason::kLength);
  return event;
}

std::vector<RequestEvent> events_of(int64_t num_tokens) {
  std::vector<RequestEvent> events;
  for (int64_t i = 0; i < num_tokens; ++i) events.push_back(event_of(i, i + 1 == num_tokens));
  return events;
}

// The adapter of a call with logprobs in each API, for `num_choices` answers.
std::vector<std::shared_ptr<ApiAdapter>> adapters(size_t num_choices, bool stream,
                                                  const TextCodec& codec) {
  ChatAnswerOptions chat;
  chat.num_choices = num_choices;
  chat.streaming.stream = stream;
  chat.logprobs = true;
  chat.codec = &codec;
  CompletionAnswerOptions completion;
  completion.num_choices = completion.choices_per_prompt = num_choices;
  completion.streaming.stream = stream;
  completion.logprobs = true;
  completion.codec = &codec;
  GenerateAnswerOptions generate;
  generate.choices.assign(num_choices, {.id = "r", .logprobs = true});
  generate.as_list = num_choices > 1;
  generate.stream = stream;
  generate.text_in_logprobs = true;
  generate.codec = &codec;
  std::vector<std::shared_ptr<ApiAdapter>> result;
  result.push_back(make_chat_adapter(std::move(chat)));
  result.push_back(make_completion_adapter(std::move(completion)));
  result.push_back(make_generate_adapter(std::move(generate)));
  return result;
}

TEST(AnswerMemoryTest, AnswersAreKeptAsNumbersAndWrittenInSmallPieces) {
  constexpr int64_t kTokens = 2000;
  constexpr size_t kChoices = 4;
  constexpr size_t kPiece = 64 << 10;
  const FakeCodec codec;
  for (const auto& adapter : adapters(kChoices, /*stream=*/false, codec)) {
    const testing::PeakMemory kept;
    std::string streamed;
    for (int64_t i = 0; i < kTokens; ++i) {
      for (size_t choice = 0; choice < kChoices; ++choice) {
        adapter->event(choice, event_of(i, i + 1 == kTokens), streamed);
      }
    }
    EXPECT_EQ(streamed, "");
    const int64_t kept_bytes = kept.bytes();
    const testing::PeakMemory written;
    JsonPieces body = adapter->body();
    std::string piece;
    std::string begin;
    size_t total = 0;
    while (body.next(piece, kPiece)) {
      ASSERT_LE(piece.size(), kPiece + 4096);
      if (begin.empty()) begin = piece.substr(0, 40);
      total += piece.size();
      piece.clear();
    }
    const int64_t written_bytes = written.bytes();
    EXPECT_GT(total, kTokens * kChoices * kNumTop * 20) << begin;
    if (!testing::PeakMemory::supported()) continue;
    // 8 bytes for each logprob, some for the token; arrays that grow take up to thrice that.
    EXPECT_LE(kept_bytes, kTokens * kChoices * (kNumTop + 3) * 8 * 3) << begin;
    EXPECT_LE(written_bytes, 4 * kPiece) << begin;
  }
}

// A codec that counts how often it is asked what a token stands for.
class CountingCodec final : public TextCodec {
 public:
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text,
                                                    bool special) const override {
    return codec_.encode(text, special);
  }

  [[nodiscard]] Result<bool> encode_at_most(std::string_view text, size_t max_tokens, bool special,
                                            const tokenizer::CancellationCheck* is_cancelled,
                                            std::vector<TokenId>& ids) const override {
    return codec_.encode_at_most(text, max_tokens, special, is_cancelled, ids);
  }

  [[nodiscard]] std::string decode(std::span<const TokenId> tokens, bool special) const override {
    return codec_.decode(tokens, special);
  }

  [[nodiscard]] std::string token_bytes(TokenId token) const override {
    ++num_asked;
    return codec_.token_bytes(token);
  }

  [[nodiscard]] std::vector<int64_t> role_boundaries(
      std::span<const TokenId> prompt) const override {
    return codec_.role_boundaries(prompt);
  }

  [[nodiscard]] Result<std::string> render_chat(const Json& messages, const Json& tools,
                                                bool add_generation_prompt,
                                                const Json& variables) const override {
    return codec_.render_chat(messages, tools, add_generation_prompt, variables);
  }

  mutable int64_t num_asked = 0;

 private:
  FakeCodec codec_;
};

TEST(AnswerMemoryTest, ACumulativeStreamWritesEachTokenOnce) {
  constexpr int64_t kTokens = 300;
  const CountingCodec codec;
  const auto adapter = adapters(1, /*stream=*/true, codec)[2];
  std::string event;
  for (int64_t i = 0; i < kTokens; ++i) {
    event.clear();
    adapter->event(0, event_of(i, i + 1 == kTokens), event);
  }
  EXPECT_EQ(codec.num_asked, kTokens * (1 + kNumTop));
  ASSERT_THAT(event, StartsWith("data: "));
  const Json last = Json::parse(event.substr(6));
  EXPECT_EQ(last["output_ids"].size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(last["meta_info"]["output_top_logprobs"].size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(last["meta_info"]["output_top_logprobs"][299][19][2], "<1019>");

  // The last event of a stream equals the answer that comes at once.
  const auto plain = adapters(1, /*stream=*/false, codec)[2];
  std::string nothing;
  for (int64_t i = 0; i < kTokens; ++i) plain->event(0, event_of(i, i + 1 == kTokens), nothing);
  std::string body;
  plain->body().write_all(body);
  EXPECT_EQ(body + "\n\n", event.substr(6));
}

class LargeAnswerTest : public ServerTest {};

TEST_F(LargeAnswerTest, ALongAnswerArrivesWholeInChunks) {
  engine->script = [](const Request&) { return events_of(400); };
  start();
  HttpClient client(server->port());
  const Json body = chat_body({{"n", 8}, {"logprobs", true}, {"top_logprobs", kNumTop}});
  const Reply reply = client.post("/v1/chat/completions", body);
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(reply.headers.at("transfer-encoding"), "chunked");
  EXPECT_TRUE(reply.headers.contains("x-ttft-ms"));
  const Json answer = reply.json();
  ASSERT_EQ(answer["choices"].size(), 8u);
  const Json& content = answer["choices"][7]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 400u);
  EXPECT_EQ(content[399]["top_logprobs"].size(), static_cast<size_t>(kNumTop));
  EXPECT_EQ(answer["usage"]["completion_tokens"], 8 * 400);
  EXPECT_EQ(client.call("GET", "/health").status, 200) << "the connection goes on";
}

TEST_F(LargeAnswerTest, OneThatCouldBeTooLargeIsRefusedWithItsSize) {
  start();
  const Json chat =
      chat_body({{"n", 128}, {"max_tokens", 30000}, {"logprobs", true}, {"top_logprobs", kNumTop}});
  const Reply refused = post("/v1/chat/completions", chat);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(error_of(refused)["param"], "max_tokens");
  EXPECT_THAT(error_of(refused)["message"].get<std::string>(),
              HasSubstr("about 5786 MiB of JSON (128 texts of up to 30000 tokens, each with 21 "
                        "logprobs); at most 2048 MiB"));
  EXPECT_EQ(post("/v1/completions",
                 {{"prompt", "p"}, {"n", 128}, {"max_tokens", 30000}, {"logprobs", kNumTop}})
                .status,
            400);
  const Json generate = {
      {"text", "p"},
      {"return_logprob", true},
      {"top_logprobs_num", kNumTop},
      {"sampling_params", {{"n", 128}, {"max_new_tokens", 32000}}},
  };
  EXPECT_EQ(error_of(post("/generate", generate))["param"], "sampling_params.max_new_tokens");
  EXPECT_TRUE(engine->submitted().empty());

  Json stream = chat;
  stream["stream"] = true;
  EXPECT_EQ(post("/v1/chat/completions", stream).status, 200) << "it is sent as it comes";
  // A cumulative stream is bounded by its last event: 32000 tokens are about 22 MiB.
  stream = generate;
  stream["stream"] = true;
  EXPECT_EQ(post("/generate", stream).status, 200);
}

TEST_F(LargeAnswerTest, AnEventOfAStreamGathersABoundedNumberOfLogprobs) {
  constexpr int64_t kTokens = 500;
  engine->script = [](const Request&) { return events_of(kTokens); };
  start();
  const Reply reply = post("/v1/chat/completions", chat_body({{"logprobs", true},
                                                              {"top_logprobs", kNumTop},
                                                              {"stream", true},
                                                              {"stream_interval", 1000000}}));
  size_t num_logprobs = 0;
  for (const std::string& event : reply.events()) {
    EXPECT_LE(event.size(), size_t{256} << 10);
    if (event == "[DONE]") continue;
    const Json logprobs = Json::parse(event)["choices"][0]["logprobs"];
    if (!logprobs.is_null()) num_logprobs += logprobs["content"].size();
  }
  EXPECT_EQ(num_logprobs, static_cast<size_t>(kTokens));
  EXPECT_LE(reply.events().size(), 20u) << "it does gather";
}

// ---- /tokenize ----

CallContext context_of(const ModelInfo& model, const TextCodec& codec) {
  static const std::vector<std::string> names = {"m"};
  static const HttpRequest head;
  static const FairKey key;
  return {.model = model,
          .codec = codec,
          .served_names = names,
          .head = head,
          .fair_key = key,
          .id = "1"};
}

TEST(TokenizeMemoryTest, TakesLessThanEightTimesItsBody) {
  if (!testing::PeakMemory::supported()) GTEST_SKIP() << "allocations are not counted here";
  const FakeCodec codec;  // a token for each byte: more than any tokenizer makes of a text
  ModelInfo model;
  model.vocab_size = 200000;
  constexpr int64_t kBytes = 4 << 20;
  const std::string half(kBytes / 2, 'x');
  for (const Json& prompt : {Json(half + half), Json{half, half}}) {
    const std::string body = Json{{"prompt", prompt}}.dump();
    const testing::PeakMemory peak;
    AnswerResult result = answer_tokenize(context_of(model, codec), body);
    auto& answer = std::get<JsonAnswer>(result);
    std::string piece;
    int64_t total = 0;
    while (answer.body.next(piece, kBodyPieceBytes)) {
      total += std::ssize(piece);
      piece.clear();
    }
    EXPECT_GT(total, 4 * kBytes) << "an id and a comma for each byte";
    EXPECT_LE(peak.bytes(), 7 * kBytes) << "beside the body itself";
  }
}

TEST(TokenizeMemoryTest, MoreTokensThanTheLimitAreRefused) {
  const FakeCodec codec;
  ModelInfo model;
  model.vocab_size = 200000;
  const std::string text(kMaxTokenizedTokens / 2 + 1, 'x');
  const std::string body = Json{{"prompt", {text, text}}}.dump();
  const AnswerResult result = answer_tokenize(context_of(model, codec), body);
  const auto& error = std::get<ApiError>(result);
  EXPECT_EQ(error.status, 413);
  EXPECT_EQ(error.param, "prompt");
  EXPECT_THAT(error.message, HasSubstr("more than 16777216 tokens"));
}

}  // namespace
}  // namespace heddle::server
