// SPDX-License-Identifier: Apache-2.0
#include "grammar/vocabulary_masks.h"

#include <algorithm>

#include "core/check.h"
#include "grammar/trie_walk.h"

namespace heddle::grammar {
namespace {

// Larger parts of the trie are referred to by their node instead of copied.
constexpr uint32_t kMaxCopiedNodes = 64;

// Removes the texts of tokens that end an answer: in the middle of an answer they are not text.
std::vector<std::string> without_ends(std::vector<std::string> token_bytes,
                                      const std::vector<TokenId>& ending_tokens) {
  for (const TokenId token : ending_tokens) {
    HEDDLE_CHECK(token >= 0 && token < std::ssize(token_bytes));
    std::string& bytes = token_bytes[static_cast<size_t>(token)];
    if (bytes.size() > 1) bytes.clear();
  }
  return token_bytes;
}

std::vector<TokenTrie::Entry> trie_entries(const std::vector<std::string>& token_bytes) {
  std::vector<TokenTrie::Entry> entries;
  entries.reserve(token_bytes.size());
  for (size_t i = 0; i < token_bytes.size(); ++i) {
    const std::string& bytes = token_bytes[i];
    if (bytes.empty() || bytes.size() > kMaxTokenBytes) continue;
    entries.emplace_back(bytes, static_cast<TokenId>(i));
  }
  return entries;
}

}  // namespace

VocabularyMasks::VocabularyMasks(std::vector<std::string> token_bytes,
                                 std::vector<TokenId> ending_tokens)
    : token_bytes_(without_ends(std::move(token_bytes), ending_tokens)),
      ending_tokens_(std::move(ending_tokens)),
      trie_(trie_entries(token_bytes_)) {
  for (TokenId token = 0; token < vocab_size(); ++token) {
    const std::string_view special = bytes(token);
    if (!is_special_token(special) || special.size() > kMaxTokenBytes) continue;
    special_tokens_.push_back(special);
  }
  std::ranges::sort(special_tokens_);
}

bool VocabularyMasks::has_special_token(std::string_view text) const {
  return std::ranges::binary_search(special_tokens_, special_token_bytes(text));
}

std::shared_ptr<const FrameMask> VocabularyMasks::find(uint64_t signature) {
  const MutexLock lock(mutex_);
  const auto found = kept_.find(signature);
  if (found == kept_.end()) return nullptr;
  uses_.splice(uses_.begin(), uses_, found->second.use);
  return found->second.mask;
}

std::shared_ptr<const FrameMask> VocabularyMasks::make(const Automaton& automaton, Place place,
                                                       uint64_t signature,
                                                       const std::optional<MaskModel>& model) {
  // Computed without the lock: two threads may compute the same mask, of which one is cached.
  auto mask = std::make_shared<const FrameMask>(make_frame_mask(automaton, place, model));
  std::shared_ptr<const FrameMask> evicted;  // freed without the lock, which the engine takes
  const MutexLock lock(mutex_);
  uses_.push_front(signature);
  const auto [entry, is_new] =
      kept_.try_emplace(signature, Kept{.mask = mask, .use = uses_.begin()});
  if (!is_new) {
    uses_.pop_front();
    return entry->second.mask;
  }
  if (kept_.size() > kMaxKeptMasks) {
    const auto oldest = kept_.find(uses_.back());
    evicted = std::move(oldest->second.mask);
    kept_.erase(oldest);
    uses_.pop_back();
  }
  return mask;
}

size_t VocabularyMasks::num_kept() const {
  const MutexLock lock(mutex_);
  return kept_.size();
}

FrameMask VocabularyMasks::make_frame_mask(const Automaton& automaton, Place place,
                                           const std::optional<MaskModel>& model) const {
  FrameMask mask;
  const auto& nodes = trie_.nodes();
  if (model) {
    mask.allowed = model->mask->allowed;
  } else {
    mask.allowed.resize(num_words());
  }
  // Below the outermost rule there is no frame, so no token can leave it.
  const bool may_leave = !automaton.is_outermost(place.state);
  std::vector<TokenTrie::Entry> leaving;
  const auto visit = [&](uint32_t index, const StackMachine::Places& places) {
    const TokenTrie::Node& node = nodes[index];
    for (const TokenId token : trie_.tokens(node)) {
      mask.allowed[static_cast<size_t>(token) / 32] |= 1u << (static_cast<uint32_t>(token) % 32);
    }
    if (!may_leave || !places.ended || node.end == index + 1) return;
    if (node.end - index > kMaxCopiedNodes) {
      mask.leaving_nodes.push_back(index);
      return;
    }
    for (uint32_t below = index + 1; below < node.end; ++below) {
      for (const TokenId token : trie_.tokens(nodes[below])) {
        leaving.emplace_back(bytes(token).substr(node.depth), token);
      }
    }
  };

  StackMachine machine(automaton);
  TrieWalk walk;
  StackMachine::Places& start = walk.start();
  start.places.push_back(
      {.stack = StackMachine::kBase, .state = place.state, .count = place.count});
  if (!model) {
    walk.run(machine, trie_, 0, visit);
    mask.leaving = TokenTrie(std::move(leaving));
    return mask;
  }
  for (uint32_t index = 1; index < nodes[0].end; index = nodes[index].end) {
    if (model->is_alike[nodes[index].byte]) continue;
    for (const TokenId token : trie_.tokens_below(index)) {
      mask.allowed[static_cast<size_t>(token) / 32] &= ~(1u << (static_cast<uint32_t>(token) % 32));
    }
    walk.run_below(machine, trie_, index, visit);
  }
  return mask;
}

}  // namespace heddle::grammar
