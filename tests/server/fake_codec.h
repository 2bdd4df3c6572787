// SPDX-License-Identifier: Apache-2.0
// FakeCodec: a token is a byte; a chat is "role: content|" for each message, with "(reasoning)"
// after the content, and a message begins after a '|'. Bytes 1 to 3 mark the parts around a gap, if
// it fills gaps.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "grammar/grammar_cache.h"
#include "server/call/text_codec.h"

namespace heddle::server {

class FakeCodec : public TextCodec {
 public:
  // Threads that encode wait here while it is closed. A test that gives it to the codec keeps it.
  struct Gate {
    std::atomic<bool> closed{false};
    std::atomic<bool> cancellable{false};  // encode_at_most() leaves it when it is cancelled
    std::atomic<int> num_waiting{0};
    std::atomic<int> num_cancelled{0};
    std::atomic<bool> fills_gaps{false};
    std::atomic<bool> hides_tools{false};   // the chat template has no place for tools
    std::atomic<bool> forms_closed{false};  // forms are compiled once it is open
    std::atomic<int> num_compiling{0};
    std::atomic<int> num_compiled{0};
  };

  explicit FakeCodec(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}

  FakeCodec() : FakeCodec(std::make_shared<Gate>()) {}

  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text, bool) const override {
    ++gate_->num_waiting;
    while (gate_->closed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --gate_->num_waiting;
    std::vector<TokenId> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  [[nodiscard]] Result<bool> encode_at_most(std::string_view text, size_t max_tokens,
                                            bool add_special_tokens,
                                            const tokenizer::CancellationCheck* is_cancelled,
                                            std::vector<TokenId>& ids) const override {
    if (gate_->cancellable && is_cancelled != nullptr) {
      ++gate_->num_waiting;
      while (gate_->closed && !(*is_cancelled)()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      --gate_->num_waiting;
      if (gate_->closed) {
        ++gate_->num_cancelled;
        return cancelled("nobody waits for it");
      }
    }
    HEDDLE_ASSIGN_OR_RETURN(ids, encode(text.substr(0, max_tokens), add_special_tokens));
    return text.size() <= max_tokens;
  }

  [[nodiscard]] std::string decode(std::span<const TokenId> tokens, bool) const override {
    std::string text;
    for (const TokenId token : tokens) text += token_bytes(token);
    return text;
  }

  [[nodiscard]] std::string token_bytes(TokenId token) const override {
    return token < 256 ? std::string(1, static_cast<char>(token))
                       : "<" + std::to_string(token) + ">";
  }

  [[nodiscard]] std::vector<int64_t> role_boundaries(
      std::span<const TokenId> prompt) const override {
    std::vector<int64_t> boundaries;
    for (size_t i = 1; i < prompt.size(); ++i) {
      if (prompt[i - 1] == '|') boundaries.push_back(static_cast<int64_t>(i));
    }
    return boundaries;
  }

  [[nodiscard]] Result<std::string> render_chat(
      const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
      bool add_generation_prompt, const nlohmann::ordered_json& variables) const override {
    std::string text;
    for (const auto& message : messages) {
      if (message["content"] == "raise") return invalid_argument("the template says no");
      text += message["role"].get<std::string>() + ": " + message["content"].get<std::string>();
      if (message.contains("reasoning_content")) {
        text += "(" + message["reasoning_content"].get<std::string>() + ")";
      }
      if (message.contains("tool_calls")) text += message["tool_calls"].dump();
      text += "|";
    }
    if (!tools.is_null() && shows_tools()) text += "tools: " + tools.dump() + "|";
    if (!variables.empty()) text += "variables: " + variables.dump() + "|";
    if (add_generation_prompt) text += "assistant: ";
    return text;
  }

  [[nodiscard]] bool shows_tools() const override { return !gate_->hides_tools; }

  [[nodiscard]] bool is_compiled(const grammar::GrammarSource* source) const override {
    return source == nullptr || grammars_->contains(*source);
  }

  // Token 0, which no text has, ends an answer.
  [[nodiscard]] Result<std::shared_ptr<const Constraint>> compile(
      const grammar::GrammarSource& source, std::span<const TokenId>,
      const grammar::CompileCheck* check) const override {
    if (!grammars_->contains(source)) {
      ++gate_->num_compiling;
      while (gate_->forms_closed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      --gate_->num_compiling;
      ++gate_->num_compiled;
    }
    HEDDLE_ASSIGN_OR_RETURN(std::shared_ptr<const Constraint> constraint,
                            grammars_->get(source, check));
    return constraint;
  }

  [[nodiscard]] Result<std::shared_ptr<const Constraint>> limit_reasoning(
      grammar::ThinkingBudgetOptions budget, std::shared_ptr<const Constraint> form,
      std::span<const TokenId>) const override {
    return std::shared_ptr<const Constraint>(std::make_shared<const grammar::ThinkingBudget>(
        std::move(budget), std::move(form), grammars_->masks()));
  }

  [[nodiscard]] std::optional<InfillMarks> infill_marks() const override {
    if (!gate_->fills_gaps) return std::nullopt;
    return InfillMarks{.prefix = 1, .suffix = 2, .middle = 3};
  }

  [[nodiscard]] std::string metrics_text() const override { return grammars_->metrics_text(); }

 private:
  static std::shared_ptr<grammar::VocabularyMasks> bytes() {
    std::vector<std::string> tokens(1);
    for (int byte = 1; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    return std::make_shared<grammar::VocabularyMasks>(std::move(tokens), std::vector<TokenId>{0});
  }

  const std::shared_ptr<grammar::GrammarCache> grammars_ =
      std::make_shared<grammar::GrammarCache>(bytes());
  const std::shared_ptr<Gate> gate_;
};

}  // namespace heddle::server
