// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar_cache.h"

namespace heddle::grammar {

size_t GrammarCache::states_of(const Compiled& grammar) {
  return grammar.ok() ? (*grammar)->automaton().num_states() : 0;
}

Result<std::shared_ptr<const TokenGrammar>> GrammarCache::get(const GrammarSource& source) {
  {
    const MutexLock lock(mutex_);
    if (const auto found = kept_.find(source); found != kept_.end()) {
      uses_.splice(uses_.begin(), uses_, found->second.use);
      return found->second.grammar;
    }
  }
  Compiled compiled = [&]() -> Compiled {
    HEDDLE_ASSIGN_OR_RETURN(Automaton automaton, compile(source));
    auto grammar = std::make_shared<const TokenGrammar>(std::move(automaton), masks_);
    grammar->make_masks();
    return grammar;
  }();
  const MutexLock lock(mutex_);
  const auto [entry, is_new] = kept_.try_emplace(source, Kept{.grammar = compiled, .use = {}});
  if (!is_new) return entry->second.grammar;
  uses_.push_front(&entry->first);
  entry->second.use = uses_.begin();
  num_states_ += states_of(compiled);
  source_bytes_ += source.text.size();
  while (kept_.size() > 1 && (kept_.size() > kMaxGrammars || num_states_ > kMaxStates ||
                              source_bytes_ > kMaxSourceBytes)) {
    const auto oldest = kept_.find(*uses_.back());
    num_states_ -= states_of(oldest->second.grammar);
    source_bytes_ -= oldest->first.text.size();
    uses_.pop_back();
    kept_.erase(oldest);
  }
  return compiled;
}

size_t GrammarCache::size() const {
  const MutexLock lock(mutex_);
  return kept_.size();
}

}  // namespace heddle::grammar
