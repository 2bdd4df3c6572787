// SPDX-License-Identifier: Apache-2.0
// Answers of many tokens with many logprobs: their memory, the size of what is written at once, and
// the limit. And bodies of many bytes for /tokenize.
#include <deque>
#include <numeric>

#include "server/api/native/generate_answer.h"
#include "server/api/native/tokenize.h"
#include "server/api/openai/chat_answer.h"
#include "server/api/openai/completions.h"
#include "server/call/generation.h"
#include "server/http/connection_exchange.h"
#include "server/http/json_text.h"
#include "server/server_fixture.h"
#include "support/allocation_count.h"

namespace heddle::server {
namespace {

using ::testing::EndsWith;
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
  completion.echoes = {""};
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

// ---- Events of many megabytes ----

// The first event of a request that wants the logprobs of its prompt: 600 bytes of JSON or more for
// each token.
RequestEvent event_with_prompt(int64_t num_prompt_tokens) {
  RequestEvent event = event_of(0, /*last=*/false);
  event.prompt_logprobs.assign(static_cast<size_t>(num_prompt_tokens), event.logprobs[0]);
  return event;
}

// The text that an event adds to a stream, in the pieces in which it is written.
std::vector<std::string> pieces_of(ApiAdapter& adapter, const RequestEvent& event) {
  std::vector<std::string> pieces(1);
  adapter.event(0, event, pieces[0]);
  JsonPieces rest = adapter.rest();
  while (!rest.done()) static_cast<void>(rest.next(pieces.emplace_back(), kBodyPieceBytes));
  return pieces;
}

std::string joined(const std::vector<std::string>& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), std::string());
}

Json json_of_event(std::string_view event) {
  EXPECT_THAT(event, StartsWith("data: "));
  EXPECT_THAT(event, EndsWith("\n\n"));
  return Json::parse(event.substr(6));
}

constexpr size_t kMaxPieceBytes = kBodyPieceBytes + 4096;  // a piece ends with a whole entry

TEST(LongEventTest, IsWrittenInSmallPieces) {
  constexpr size_t kPromptTokens = 5000;
  const CountingCodec codec;
  const auto streams = adapters(1, /*stream=*/true, codec);
  ApiAdapter& completions = *streams[1];
  ApiAdapter& generate = *streams[2];
  for (ApiAdapter* const adapter : {&completions, &generate}) {
    const auto pieces = pieces_of(*adapter, event_with_prompt(kPromptTokens));
    EXPECT_GT(pieces.size(), 5u);
    for (const std::string& piece : pieces) ASSERT_LE(piece.size(), kMaxPieceBytes);
    const Json event = json_of_event(joined(pieces));
    const Json& shown = adapter == &completions ? event["choices"][0]["logprobs"]["top_logprobs"]
                                                : event["meta_info"]["input_top_logprobs"];
    EXPECT_EQ(shown.size(), kPromptTokens + (adapter == &completions ? 1 : 0));
  }
  // /v1/completions shows what is new, /generate everything, which it does not format again.
  const Json second = json_of_event(joined(pieces_of(completions, event_of(1, /*last=*/true))));
  EXPECT_EQ(second["choices"][0]["logprobs"]["top_logprobs"].size(), 1u);
  codec.num_asked = 0;
  const auto pieces = pieces_of(generate, event_of(1, /*last=*/true));
  EXPECT_EQ(codec.num_asked, 1 + kNumTop);
  for (const std::string& piece : pieces) ASSERT_LE(piece.size(), kMaxPieceBytes);
  const Json meta = json_of_event(joined(pieces))["meta_info"];
  EXPECT_EQ(meta["input_token_logprobs"].size(), kPromptTokens);
  EXPECT_EQ(meta["input_top_logprobs"].size(), kPromptTokens);
  EXPECT_EQ(meta["output_top_logprobs"].size(), 2u);
}

// A stream whose I/O thread is the test: it runs the turns and takes the bytes as a client does.
class LongEventStreamTest : public ::testing::Test {
 protected:
  static constexpr int64_t kMaxOutboxBytes = 1 << 20;
  static constexpr size_t kMaxTurnBytes = 2 * kMaxPieceBytes;  // an end and the next beginning

  // Runs turns until all events of the call are delivered, then sends; returns what was sent.
  std::string stream(ApiAdapter& adapter, std::vector<RequestEvent> events) {
    engine_.script = [events = std::move(events)](const Request&) { return events; };
    PreparedCall call;
    call.id = "1";
    call.stream = true;
    call.requests.emplace_back().prompt = {1};
    call.adapter = std::shared_ptr<ApiAdapter>(&adapter, [](ApiAdapter*) {});
    const auto exchange =
        std::make_shared<ConnectionExchange>(HttpRequest(), kMaxOutboxBytes, [] {});
    Generation::start(host_, exchange, std::move(call), *host_.early_aborts.arrive());
    const auto run_turn = [&] {
      const size_t before = exchange->unsent_bytes();
      next_turn()();
      EXPECT_LE(exchange->unsent_bytes(), before + kMaxTurnBytes);
    };
    while (!host_.live.empty()) run_turn();
    std::string sent;
    while (true) {
      while (has_turn()) run_turn();
      EXPECT_LE(exchange->unsent_bytes(), kMaxOutboxBytes + kMaxPieceBytes);
      if (!exchange->has_piece()) return sent;
      const size_t before = exchange->unsent_bytes();
      sent += exchange->take_piece().bytes;
      exchange->piece_sent();
      EXPECT_LE(exchange->unsent_bytes(), before + kMaxTurnBytes);
    }
  }

 private:
  void add_turn(std::function<void()> turn) {
    const MutexLock lock(mutex_);
    turns_.push_back(std::move(turn));
    posted_.notify_all();
  }

  [[nodiscard]] bool has_turn() {
    const MutexLock lock(mutex_);
    return !turns_.empty();
  }

  [[nodiscard]] std::function<void()> next_turn() {
    const MutexLock lock(mutex_);
    posted_.wait(mutex_, [this]() HEDDLE_REQUIRES(mutex_) { return !turns_.empty(); });
    std::function<void()> turn = std::move(turns_.front());
    turns_.pop_front();
    return turn;
  }

  Mutex mutex_;
  CondVar posted_;
  std::deque<std::function<void()>> turns_ HEDDLE_GUARDED_BY(mutex_);
  const std::function<void(std::function<void()>)> post_ = [this](std::function<void()> turn) {
    add_turn(std::move(turn));
  };
  EventInbox inbox_{post_};
  FakeEngine engine_;
  GenerationHost host_{.engine = &engine_, .inbox = &inbox_, .threads = {.post = post_}};
};

TEST_F(LongEventStreamTest, IsFormattedAsItsClientReads) {
  const FakeCodec codec;
  for (const size_t api : {size_t{1}, size_t{2}}) {
    const auto adapter = adapters(1, /*stream=*/true, codec)[api];
    const std::string sent =
        stream(*adapter, {event_with_prompt(5000), event_of(1, false), event_of(2, true)});
    EXPECT_GT(sent.size(), static_cast<size_t>(kMaxOutboxBytes) * 2);
    size_t num_events = 0;
    std::string_view rest = sent;
    for (; !rest.starts_with("data: [DONE]"); ++num_events) {
      const size_t end = rest.find("\n\n");
      ASSERT_NE(end, std::string_view::npos);
      static_cast<void>(json_of_event(rest.substr(0, end + 2)));
      rest.remove_prefix(end + 2);
    }
    EXPECT_EQ(num_events, 3u);
    EXPECT_EQ(rest, kSseDone);
  }
}

TEST_F(LongEventStreamTest, AFailureFollowsItWhole) {
  const FakeCodec codec;
  const auto adapter = adapters(1, /*stream=*/true, codec)[1];
  RequestEvent failure;
  failure.finish = finish_of(FinishReason::kError, internal_error("broken"));
  const std::string sent = stream(*adapter, {event_with_prompt(5000), failure});
  const size_t end = sent.find("\n\n") + 2;
  EXPECT_EQ(json_of_event(sent.substr(0, end))["choices"].size(), 1u);
  EXPECT_THAT(sent.substr(end, 20), StartsWith("data: {\"error\""));
  EXPECT_THAT(sent, EndsWith(kSseDone));
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
