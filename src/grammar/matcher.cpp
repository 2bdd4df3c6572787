// SPDX-License-Identifier: Apache-2.0
#include "grammar/matcher.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "grammar/spelling.h"

namespace heddle::grammar {
namespace {

void allow(std::span<uint32_t> mask, TokenId token) {
  mask[static_cast<size_t>(token) / 32] |= 1u << (static_cast<uint32_t>(token) % 32);
}

}  // namespace

TokenGrammar::TokenGrammar(Automaton automaton, std::shared_ptr<VocabularyMasks> masks)
    : automaton_(std::move(automaton)),
      signatures_(automaton_.signatures(static_cast<int>(kMaxTokenBytes))),
      masks_(std::move(masks)) {}

std::unique_ptr<ConstraintState> TokenGrammar::start() const {
  return std::make_unique<Matcher>(shared_from_this());
}

std::shared_ptr<const FrameMask> TokenGrammar::frame_mask(StateId state, uint32_t count) const {
  const uint64_t wanted = signature(state, count);
  std::shared_ptr<const FrameMask> mask = masks_->find(wanted);
  const bool may_be_model = automaton_.is_outermost(state) && !automaton_.is_counted(state);
  if (mask == nullptr) {
    std::optional<MaskModel> model;
    if (may_be_model) model = find_model(state);
    mask = masks_->make(automaton_, {.state = state, .count = count}, wanted, model);
    if (model) return mask;
  }
  if (may_be_model) {
    const MutexLock lock(mutex_);
    const bool is_new = std::ranges::find(models_, mask, &Made::mask) == models_.end();
    if (is_new && models_.size() < kMaxModels) models_.push_back({.state = state, .mask = mask});
  }
  return mask;
}

// The mask of another state that treats most first bytes like `state`, if such a mask exists.
std::optional<MaskModel> TokenGrammar::find_model(StateId state) const {
  constexpr size_t kAlike = 192;  // number of the 256 first bytes that must be treated alike
  std::vector<Made> models;
  {
    const MutexLock lock(mutex_);
    models = models_;
  }
  // For each first byte: the signature of the state after it, or 0 if the byte is not allowed.
  const auto next_of = [&](StateId from) {
    std::array<uint64_t, 256> next{};
    for (const Automaton::ByteEdge& edge : automaton_.byte_edges(from)) {
      std::fill(next.begin() + edge.first, next.begin() + edge.last + 1,
                signatures_.of_entry[edge.target] | 1);
    }
    return next;
  };
  const std::array<uint64_t, 256> wanted = next_of(state);
  std::optional<MaskModel> best;
  size_t num_best = kAlike;
  for (const Made& model : models) {
    const std::array<uint64_t, 256> next = next_of(model.state);
    MaskModel candidate{.mask = model.mask, .is_alike = {}};
    for (size_t byte = 0; byte < 256; ++byte) candidate.is_alike[byte] = next[byte] == wanted[byte];
    const size_t num_alike = candidate.is_alike.count();
    if (num_alike < num_best) continue;
    num_best = num_alike + 1;
    best = std::move(candidate);
  }
  return best;
}

void TokenGrammar::make_masks() const {
  // Number of allowed first bytes from which on a mask is made in advance: fewer lead to few
  // tokens, whose mask is found quickly.
  constexpr int kManyBytes = 16;

  struct Kind {
    StateId state = 0;
    uint32_t count = 0;
    size_t num_states = 0;
  };

  std::unordered_map<uint64_t, Kind> kinds;
  const auto add = [&](StateId state, uint32_t count) {
    Kind& kind = kinds
                     .try_emplace(signature(state, count),
                                  Kind{.state = state, .count = count, .num_states = 0})
                     .first->second;
    ++kind.num_states;
  };
  for (StateId state = 0; state < automaton_.num_states(); ++state) {
    int num_bytes = 0;
    for (const Automaton::ByteEdge& edge : automaton_.byte_edges(state)) {
      num_bytes += edge.last - edge.first + 1;
    }
    if (num_bytes < kManyBytes) continue;
    add(state, 0);
    if (automaton_.min_count(state) > 0) add(state, automaton_.min_count(state));
  }
  std::vector<Kind> order;
  order.reserve(kinds.size());
  for (const auto& [signature, kind] : kinds) order.push_back(kind);
  std::ranges::sort(order, [](const Kind& a, const Kind& b) {
    return std::tuple(b.num_states, a.state, a.count) < std::tuple(a.num_states, b.state, b.count);
  });
  // The text around calls belongs to the outermost rule.
  const auto others = std::ranges::stable_partition(
      order, [&](const Kind& kind) { return automaton_.is_outermost(kind.state); });
  const auto num_outermost = order.size() - others.size();
  if (num_outermost > kMaxMadeMasks / 2) {
    std::rotate(order.begin() + kMaxMadeMasks / 2,
                order.begin() + static_cast<ptrdiff_t>(num_outermost), order.end());
  }
  // The masks of the start, which every answer needs first.
  StackMachine machine(automaton_);
  StackMachine::Places first;
  machine.start({.stack = StackMachine::kBase, .state = automaton_.start()}, first);
  for (const StackMachine::Place& place : first.places) (void)frame_mask(place.state, place.count);
  for (size_t i = 0; i < std::min(order.size(), kMaxMadeMasks); ++i) {
    (void)frame_mask(order[i].state, order[i].count);
  }
}

Matcher::Matcher(std::shared_ptr<const TokenGrammar> grammar)
    : grammar_(std::move(grammar)), machine_(grammar_->automaton()) {
  steps_.emplace_back();
  machine_.start({.stack = StackMachine::kBase, .state = grammar_->automaton().start()},
                 steps_.back().places);
}

bool Matcher::accept(TokenId token) {
  const bool is_ending = std::ranges::find(grammar_->masks().ending_tokens(), token) !=
                         grammar_->masks().ending_tokens().end();
  if (!is_ending || !steps_.back().places.ended) return accept_text(token);
  Step next;
  next.is_over = true;
  next.places.ended = true;
  push(std::move(next));
  return true;
}

bool Matcher::accept_text(TokenId token) {
  const VocabularyMasks& masks = grammar_->masks();
  if (token < 0 || token >= masks.vocab_size()) return false;
  const std::string_view bytes = masks.bytes(token);
  if (bytes.empty() || steps_.back().is_over) return false;
  Step next;
  next.places = steps_.back().places;
  for (const char byte : bytes) {
    machine_.step(next.places, static_cast<uint8_t>(byte), scratch_);
    std::swap(next.places, scratch_);
    if (next.places.is_dead()) return false;
  }
  push(std::move(next));
  return true;
}

void Matcher::push(Step next) {
  steps_.push_back(std::move(next));
  if (steps_.size() > static_cast<size_t>(kMaxRollback) + 1) steps_.pop_front();
  if (machine_.mark() > collect_at_) collect();
}

void Matcher::roll_back(int64_t count) {
  HEDDLE_CHECK(count >= 0 && count < static_cast<int64_t>(steps_.size()));
  for (int64_t i = 0; i < count; ++i) steps_.pop_back();
}

bool Matcher::is_complete() const { return steps_.back().places.ended; }

bool Matcher::is_over() const {
  const Step& step = steps_.back();
  return step.places.ended && (step.is_over || step.places.places.empty());
}

Status Matcher::fill_mask(std::span<uint32_t> mask) {
  HEDDLE_RETURN_IF_ERROR(fill_text_mask(mask));
  if (steps_.back().places.ended) {
    for (const TokenId token : grammar_->masks().ending_tokens()) allow(mask, token);
  }
  return ok_status();
}

Status Matcher::fill_text_mask(std::span<uint32_t> mask) {
  HEDDLE_CHECK(mask.size() >= grammar_->masks().num_words());
  std::ranges::fill(mask, 0u);
  const Step& step = steps_.back();
  is_mask_complete_ = !step.places.too_many;
  if (!step.is_over) {
    for (const StackMachine::Place& place : step.places.places) add_place(place, mask);
  }
  if (!is_mask_complete_) {
    return invalid_argument(
        fmt::format("the grammar is too ambiguous: more than {} ways to read the answer so far; "
                    "make alternatives differ earlier",
                    StackMachine::kMaxPlaces));
  }
  if (!step.places.ended && std::ranges::all_of(mask, [](uint32_t word) { return word == 0; })) {
    return invalid_argument(
        "none of the model's tokens goes on with the answer in its form; the vocabulary lacks "
        "characters that the form asks for");
  }
  return ok_status();
}

void Matcher::forced_tokens(int64_t most, std::vector<TokenId>& tokens) {
  if (most <= 0 || steps_.back().is_over) return;
  std::array<char, kMaxSpelledBytes> text;
  size_t size = 0;
  const size_t mark = machine_.mark();
  forced_ = steps_.back().places;
  for (; size < text.size(); ++size) {
    const std::optional<uint8_t> byte = only_byte(forced_);
    if (!byte) break;
    machine_.step(forced_, *byte, scratch_);
    if (scratch_.is_dead()) break;
    std::swap(forced_, scratch_);
    text[size] = static_cast<char>(*byte);
  }
  machine_.rewind(mark);
  if (size == 0) return;
  const size_t before = tokens.size();
  spell(grammar_->masks().trie(), {text.data(), size}, tokens);
  if (std::ssize(tokens) - static_cast<int64_t>(before) > most) {
    tokens.resize(before + static_cast<size_t>(most));
  }
}

// The only byte that may follow; nullopt if several may follow, or if the text may end.
std::optional<uint8_t> Matcher::only_byte(const StackMachine::Places& places) const {
  if (places.ended || places.too_many) return std::nullopt;
  std::optional<uint8_t> only;
  for (const StackMachine::Place& place : places.places) {
    for (const Automaton::ByteEdge& edge : grammar_->automaton().byte_edges(place.state)) {
      if (!grammar_->automaton().fits(edge.target,
                                      place.count + static_cast<uint32_t>(edge.counts))) {
        continue;
      }
      if (edge.first != edge.last || (only && *only != edge.first)) return std::nullopt;
      only = edge.first;
    }
  }
  return only;
}

bool Matcher::is_deep(const StackMachine::Place& place) const {
  const int32_t rise =
      static_cast<int32_t>(kMaxTokenBytes) * (grammar_->automaton().call_chain() + 1);
  return machine_.depth(place.stack) + rise > Automaton::kMaxDepth;
}

void Matcher::add_place(const StackMachine::Place& place, std::span<uint32_t> mask) {
  VocabularyMasks& masks = grammar_->masks();
  const TokenTrie& trie = masks.trie();
  const size_t mark = machine_.mark();
  const auto allow_all = [&](const TokenTrie& of) {
    return [&mask, &of](uint32_t index, const StackMachine::Places&) {
      for (const TokenId token : of.tokens(of.nodes()[index])) allow(mask, token);
    };
  };
  StackMachine::Places& start = walk_.start();
  if (is_deep(place)) {
    // Near the depth limit, the allowed tokens depend on the depth of the stack.
    start.places.assign(1, place);
    start.ended = start.too_many = false;
    if (!walk_.run(machine_, trie, 0, allow_all(trie))) is_mask_complete_ = false;
    machine_.rewind(mark);
    return;
  }
  const std::shared_ptr<const FrameMask> frame = grammar_->frame_mask(place.state, place.count);
  for (size_t i = 0; i < frame->allowed.size(); ++i) mask[i] |= frame->allowed[i];
  if (place.stack == StackMachine::kBase) return;
  machine_.start(machine_.return_place(place.stack), start);
  if (!walk_.run(machine_, frame->leaving, 0, allow_all(frame->leaving))) is_mask_complete_ = false;
  for (const uint32_t node : frame->leaving_nodes) {
    if (!walk_.run(machine_, trie, node, allow_all(trie))) is_mask_complete_ = false;
  }
  machine_.rewind(mark);
}

void Matcher::collect() {
  std::vector<StackMachine::Places*> kept;
  kept.reserve(steps_.size());
  for (Step& step : steps_) kept.push_back(&step.places);
  machine_.collect(std::move(kept));
  collect_at_ = std::max(kMinCollectedFrames, 2 * machine_.mark());
}

}  // namespace heddle::grammar
