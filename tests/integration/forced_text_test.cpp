// SPDX-License-Identifier: Apache-2.0
// Forced tokens (ConstraintState::forced_tokens()) save steps and change no token of an answer:
// random schemas on random machines, each once with them and once without.
#include <algorithm>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "engine/engine_fixture.h"
#include "grammar/grammar.h"
#include "server/call/text_codec.h"
#include "support/finish_count.h"
#include "support/silent_form.h"
#include "support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace heddle {
namespace {

using engine::EngineFixture;
using engine::Received;
using grammar::GrammarKind;
using grammar::TokenGrammar;
using grammar::VocabularyMasks;
using ::testing::IsEmpty;

class RandomForms {
 public:
  explicit RandomForms(unsigned seed) : random_(seed) {}

  // The tokens below 128 are bytes, those above parts of what schemas force: a text may be spelled
  // in many ways.
  std::shared_ptr<VocabularyMasks> vocabulary() {
    std::string words = "\": \", \"},\n  ";
    for (const char* const word : kWords) words += word;
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 128; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    while (tokens.size() < 256) tokens.push_back(words.substr(below(words.size()), 2 + below(4)));
    tokens.emplace_back();  // ByteTokenizer::kEos
    return std::make_shared<VocabularyMasks>(std::move(tokens),
                                             std::vector<TokenId>{testing::ByteTokenizer::kEos});
  }

  nlohmann::ordered_json schema(int depth = 0) {
    switch (below(depth < 2 ? 6 : 4)) {
      case 0:
        return {{"type", "integer"}, {"minimum", 0}, {"maximum", 300}};
      case 1:
        return {{"enum", {word(), word(), word() + word()}}};
      case 2:
        return {{"const", word() + "-" + word()}};
      case 3:
        return {{"type", "string"}, {"maxLength", 4}};
      case 4:
        return {{"type", "array"}, {"maxItems", 2}, {"items", schema(depth + 1)}};
      default:
        return object(depth);
    }
  }

  nlohmann::ordered_json object(int depth = 0) {
    nlohmann::ordered_json object = {{"type", "object"}, {"additionalProperties", false}};
    object["required"] = nlohmann::ordered_json::array();
    for (size_t i = 1 + below(3); i > 0; --i) {
      const std::string name = fmt::format("{}_{}", word(), word());
      object["properties"][name] = schema(depth + 1);
      if (below(5) > 0) object["required"].push_back(name);
    }
    return object;
  }

  size_t below(size_t end) { return random_() % end; }

 private:
  static constexpr const char* kWords[] = {"customer", "name",  "address", "total",
                                           "order",    "state", "payment", "kind"};

  std::string word() { return kWords[below(std::size(kWords))]; }

  std::mt19937 random_;
};

struct Machine {
  EngineFixture::Options options;
  std::vector<Request> requests;
};

Machine make_machine(unsigned seed) {
  RandomForms random(seed);
  Machine machine;
  EngineFixture::Options& options = machine.options;
  options.limits.max_draft_rows = std::vector<int64_t>{2, 5, 16, 32}[random.below(4)];
  options.sizes.num_pages = random.below(2) == 0 ? 256 : 60;  // not for all at once
  options.sizes.num_state_slots = random.below(4) == 0 ? 0 : 8;
  options.context_length = 200;
  options.chunked_prefill_tokens = static_cast<int64_t>(1 + random.below(32));
  options.scheduling.overlap = random.below(2) == 0;
  options.scheduling.mixed_batches = random.below(3) > 0;
  options.cache.enabled = random.below(4) > 0;
  const auto masks = random.vocabulary();
  const size_t num_requests = 1 + random.below(6);
  for (size_t i = 0; i < num_requests; ++i) {
    Request& request = machine.requests.emplace_back(EngineFixture::request(
        fmt::format("r{}", i), static_cast<int64_t>(1 + random.below(40)), 90));
    request.sampling.seed = seed + i / 2;
    request.return_logprobs = random.below(2) == 0;
    if (random.below(5) == 0) request.stop.max_new_tokens = static_cast<int64_t>(random.below(20));
    if (random.below(5) == 0) continue;  // a free answer
    auto automaton =
        grammar::compile({.kind = GrammarKind::kJsonSchema, .text = random.object().dump()});
    EXPECT_TRUE(automaton.ok()) << automaton.status().to_string();
    request.constraint = std::make_shared<const TokenGrammar>(std::move(automaton).value(), masks);
  }
  return machine;
}

std::vector<Received> play(const Machine& machine, bool forces) {
  EngineFixture fixture(machine.options);
  fixture.runner->vocabulary.seeded = true;
  std::vector<Received> received(machine.requests.size());
  for (size_t i = 0; i < received.size(); ++i) {
    Request request = machine.requests[i];
    if (!forces && request.constraint != nullptr) {
      request.constraint = std::make_shared<testing::SilentForm>(request.constraint);
    }
    EXPECT_TRUE(fixture.submit(std::move(request), received[i]).ok());
    if (i % 2 == 1) fixture.engine->step();
  }
  while (fixture.engine->step()) fixture.engine->check_invariants();
  EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
  return received;
}

TEST(ForcedTextTest, ChangesNoTokenOfAnyAnswer) {
  int64_t num_tokens = 0;
  int64_t num_forced = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Machine machine = make_machine(seed);
    const std::vector<Received> plain = play(machine, /*forces=*/false);
    const std::vector<Received> forced = play(machine, /*forces=*/true);
    for (size_t i = 0; i < plain.size(); ++i) {
      ASSERT_EQ(forced[i].tokens, plain[i].tokens) << "request " << i;
      ASSERT_EQ(forced[i].text, plain[i].text);
      ASSERT_EQ(forced[i].reason(), plain[i].reason());
      ASSERT_EQ(forced[i].logprobs.size(), plain[i].logprobs.size());
      for (size_t t = 0; t < plain[i].logprobs.size(); ++t) {
        ASSERT_EQ(forced[i].logprobs[t].token, plain[i].logprobs[t].token);
      }
      ASSERT_EQ(plain[i].last.drafts.forced_tokens, 0);
      if (machine.requests[i].constraint == nullptr) continue;
      num_tokens += std::ssize(plain[i].tokens);
      num_forced += forced[i].last.drafts.forced_tokens;
    }
  }
  // This model draws any spelling, so that few of the usual ones hold.
  EXPECT_GT(num_forced, num_tokens / 20);
  ::testing::Test::RecordProperty("tokens", std::to_string(num_tokens));
  ::testing::Test::RecordProperty("forced", std::to_string(num_forced));
}

TEST(ForcedTextTest, AnswersWithLongKeysTakeFewerSteps) {
  const auto model = testing::repository_path("models/heddle-tiny");
  auto engine = Engine::create({.model_dir = model,
                                .exact = true,
                                .device = "cpu",
                                .num_threads = 2,
                                .max_total_tokens = 4096,
                                .speculative = {.algorithm = DraftAlgorithm::kNone}});
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  const auto codec = server::make_model_codec(model, *(*engine)->tokenizer(), "").value();
  const auto form = codec->compile({.kind = GrammarKind::kJsonSchema,
                                    .text = R"({"type": "object", "additionalProperties": false,
      "required": ["customer_name", "shipping_address", "order_total_cents", "payment_method"],
      "properties": {"customer_name": {"type": "string", "maxLength": 10},
                     "shipping_address": {"type": "string", "maxLength": 10},
                     "order_total_cents": {"type": "integer", "minimum": 0, "maximum": 9999},
                     "payment_method": {"enum": ["credit_card", "bank_transfer"]}}})"},
                                   (*engine)->model_info().eos_token_ids);
  ASSERT_TRUE(form.ok()) << form.status().to_string();
  const auto answer = [&](std::shared_ptr<const Constraint> constraint) {
    Request request{.id = "one", .prompt = codec->encode("An order of tea.", false).value()};
    request.sampling.temperature = 0;
    request.stop.max_new_tokens = 200;
    request.constraint = std::move(constraint);
    Received received;
    testing::FinishCount finished;
    const Status status = (*engine)->submit(std::move(request), [&](const RequestEvent& event) {
      received.take(event);
      if (event.finish) finished.add();
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (status.ok()) finished.wait_for(1);
    return received;
  };
  const Received plain = answer(std::make_shared<testing::SilentForm>(*form));
  const Received forced = answer(*form);
  EXPECT_EQ(forced.tokens, plain.tokens);
  EXPECT_EQ(forced.reason(), FinishReason::kStop);
  EXPECT_EQ(plain.last.drafts.verify_steps, std::ssize(plain.tokens) - 1);
  // The model has never seen JSON and spells much of it its own way.
  EXPECT_LT(3 * forced.last.drafts.verify_steps, 2 * plain.last.drafts.verify_steps);
  ::testing::Test::RecordProperty("steps", std::to_string(forced.last.drafts.verify_steps));
  ::testing::Test::RecordProperty("tokens", std::to_string(plain.tokens.size()));
}

// A vocabulary's ids say how a text is spelled: as its tokenizer does, whose merges they count.
TEST(ForcedTextTest, IsSpelledAsTheTokenizerDoes) {
  const auto model = testing::repository_path("models/heddle-tiny");
  const auto tokenizer = tokenizer::load_tokenizer(model).value();
  const auto codec = server::make_model_codec(model, *tokenizer, "").value();
  for (const char* const text :
       {"customer_name", "the shipping address of the order", "totalCents", "a-b-c", "kinds"}) {
    const auto form =
        codec->compile({.kind = GrammarKind::kRegex, .text = fmt::format("x{}[ab]", text)},
                       std::vector<TokenId>{0});
    ASSERT_TRUE(form.ok()) << form.status().to_string();
    const auto state = (*form)->start();
    ASSERT_TRUE(state->accept(tokenizer->token_to_id("x").value()));
    std::vector<TokenId> tokens;
    state->forced_tokens(64, tokens);
    EXPECT_EQ(tokens, codec->encode(text, false).value()) << text;
  }
}

}  // namespace
}  // namespace heddle
