// SPDX-License-Identifier: Apache-2.0
#include "grammar/thinking_budget.h"

#include <algorithm>
#include <deque>
#include <string_view>
#include <utility>

#include "core/check.h"

namespace heddle::grammar {
namespace {

// Most white-space bytes before the opening mark: answers that begin with more do not reason
// (parsers/thinking_parser.cpp).
constexpr size_t kMaxSpaceBeforeMark = 64;

constexpr std::string_view kSpace = " \t\n\r";

}  // namespace

class ThinkingBudget::State final : public ConstraintState {
 public:
  explicit State(std::shared_ptr<const ThinkingBudget> budget)
      : budget_(std::move(budget)),
        form_(budget_->form_ == nullptr ? nullptr : budget_->form_->start()) {
    Step first;
    if (!options().open) enter(first, {});
    steps_.push_back(std::move(first));
  }

  [[nodiscard]] bool accept(TokenId token) override {
    return take(token, &ConstraintState::accept);
  }

  [[nodiscard]] bool accept_text(TokenId token) override {
    return take(token, &ConstraintState::accept_text);
  }

  void roll_back(int64_t count) override {
    HEDDLE_CHECK(count >= 0 && count < static_cast<int64_t>(steps_.size()));
    for (int64_t i = 0; i < count; ++i) steps_.pop_back();
    if (form_ != nullptr) form_->roll_back(count);
  }

  [[nodiscard]] bool is_complete() const override {
    return steps_.back().part != Part::kEnding && (form_ == nullptr || form_->is_complete());
  }

  [[nodiscard]] bool is_over() const override { return form_ != nullptr && form_->is_over(); }

  [[nodiscard]] Status fill_mask(std::span<uint32_t> mask) override {
    return fill(mask, &ConstraintState::fill_mask);
  }

  [[nodiscard]] Status fill_text_mask(std::span<uint32_t> mask) override {
    return fill(mask, &ConstraintState::fill_text_mask);
  }

  void forced_tokens(int64_t most, std::vector<TokenId>& tokens) override {
    const Step& step = steps_.back();
    if (step.part == Part::kEnding) {
      const std::span rest = std::span(options().ending).subspan(step.num_tokens);
      const auto count = std::min(most, std::ssize(rest));
      tokens.insert(tokens.end(), rest.begin(), rest.begin() + count);
    } else if (form_ != nullptr) {
      form_->forced_tokens(most, tokens);
    }
  }

 private:
  enum class Part : uint8_t { kStart, kReasoning, kEnding, kAnswer };

  struct Step {
    Part part = Part::kStart;
    size_t num_tokens = 0;  // number of tokens of the reasoning, or of its ending, so far
    std::string text;       // at the start, the text so far; within reasoning, the possible
                            // beginning of a mark or call
  };

  [[nodiscard]] const ThinkingBudgetOptions& options() const { return budget_->options_; }

  bool take(TokenId token, bool (ConstraintState::*form_accepts)(TokenId)) {
    if (token < 0 || token >= budget_->vocab_size()) return false;
    Step next = steps_.back();
    if (next.part == Part::kEnding && token != options().ending[next.num_tokens]) return false;
    if (form_ != nullptr && !(*form_.*form_accepts)(token)) return false;
    advance(next, token);
    steps_.push_back(std::move(next));
    if (steps_.size() > static_cast<size_t>(kMaxRollback) + 1) steps_.pop_front();
    return true;
  }

  Status fill(std::span<uint32_t> mask,
              Status (ConstraintState::*form_fills)(std::span<uint32_t>)) {
    const Step& step = steps_.back();
    if (step.part != Part::kEnding && form_ != nullptr) return (*form_.*form_fills)(mask);
    const auto vocab_size = static_cast<size_t>(budget_->vocab_size());
    HEDDLE_CHECK(mask.size() >= (vocab_size + 31) / 32);
    std::ranges::fill(mask, 0u);
    if (step.part == Part::kEnding) {
      const auto token = static_cast<size_t>(options().ending[step.num_tokens]);
      mask[token / 32] |= 1u << (token % 32);
      return ok_status();
    }
    std::ranges::fill(mask.first(vocab_size / 32), ~0u);
    if (vocab_size % 32 != 0) mask[vocab_size / 32] = (1u << (vocab_size % 32)) - 1;
    return ok_status();
  }

  // Enters the reasoning, which begins with `text`.
  void enter(Step& step, std::string_view text) const {
    step.part = Part::kReasoning;
    step.num_tokens = 0;
    step.text.clear();
    read_reasoning(step, text);
  }

  // The bytes of a token; a special token has the bytes of its spelling.
  [[nodiscard]] std::string_view bytes_of(TokenId token) const {
    const std::string_view text = budget_->masks_->text(token);
    if (!text.empty()) return text;
    const auto call = std::ranges::find(options().calls, token, &ReasoningMark::token);
    return call == options().calls.end() ? text : call->text;
  }

  void advance(Step& step, TokenId token) const {
    const std::string_view bytes = bytes_of(token);
    switch (step.part) {
      case Part::kStart:
        if (token == options().open->token) return enter(step, {});
        return read_start(step, bytes);
      case Part::kReasoning:
        ++step.num_tokens;
        if (token == options().close.token) {
          step.part = Part::kAnswer;
          step.text.clear();
          return;
        }
        return read_reasoning(step, bytes);
      case Part::kEnding:
        if (++step.num_tokens == options().ending.size()) step.part = Part::kAnswer;
        return;
      case Part::kAnswer:
        return;
    }
  }

  void read_start(Step& step, std::string_view bytes) const {
    const std::string& mark = options().open->text;
    step.text += bytes;
    const size_t space = std::min(step.text.find_first_not_of(kSpace), step.text.size());
    const std::string_view rest = std::string_view(step.text).substr(space);
    if (rest.starts_with(mark)) {
      const std::string after(rest.substr(mark.size()));
      return enter(step, after);
    }
    if (space <= kMaxSpaceBeforeMark && mark.starts_with(rest)) return;
    step.part = Part::kAnswer;
    step.text.clear();
  }

  void read_reasoning(Step& step, std::string_view bytes) const {
    step.text += bytes;
    const std::optional<bool> ended = find_end(step.text);
    if (!ended) return;  // a call may have begun
    if (*ended) {
      step.part = Part::kAnswer;
      step.text.clear();
      return;
    }
    if (step.num_tokens < static_cast<size_t>(options().budget_tokens)) return;
    step.part = Part::kEnding;
    step.num_tokens = 0;
    step.text.clear();
  }

  // Whether reasoning has ended within `text`; nullopt: more text is needed. Keeps the possible
  // beginning of a mark or call.
  [[nodiscard]] std::optional<bool> find_end(std::string& text) const {
    size_t longest = options().close.text.size();
    for (const ReasoningMark& call : options().calls) {
      longest = std::max(longest, call.text.size());
    }
    while (true) {
      const size_t close = text.find(options().close.text);
      size_t begin = close;
      size_t size = 0;  // length of the call's mark
      for (const ReasoningMark& call : options().calls) {
        const size_t found = text.find(call.text);
        if (found > begin || found == std::string::npos) continue;
        size = found < begin ? call.text.size() : std::max(size, call.text.size());
        begin = found;
      }
      if (begin == std::string::npos) break;
      if (size == 0) return true;
      text.erase(0, begin);
      const std::optional<bool> is_call =
          options().begins_call ? options().begins_call(text) : std::optional(true);
      if (is_call != false) return is_call;
      text.erase(0, size);
    }
    if (text.size() >= longest) text.erase(0, text.size() - longest + 1);
    return false;
  }

  const std::shared_ptr<const ThinkingBudget> budget_;
  const std::unique_ptr<ConstraintState> form_;
  std::deque<Step> steps_;  // one per accepted token; the last one is the current state
};

ThinkingBudget::ThinkingBudget(ThinkingBudgetOptions options,
                               std::shared_ptr<const Constraint> form,
                               std::shared_ptr<const VocabularyMasks> masks)
    : options_(std::move(options)), form_(std::move(form)), masks_(std::move(masks)) {
  HEDDLE_CHECK(options_.budget_tokens >= 0);
  HEDDLE_CHECK(!options_.close.text.empty() && !options_.ending.empty());
  HEDDLE_CHECK(!options_.open || !options_.open->text.empty());
  for (const ReasoningMark& call : options_.calls) HEDDLE_CHECK(!call.text.empty());
  for (const TokenId token : options_.ending) HEDDLE_CHECK(token >= 0 && token < vocab_size());
}

std::unique_ptr<ConstraintState> ThinkingBudget::start() const {
  return std::make_unique<State>(shared_from_this());
}

}  // namespace heddle::grammar
