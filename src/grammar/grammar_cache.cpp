// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar_cache.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/log.h"
#include "core/printable.h"

namespace heddle::grammar {
namespace {

constexpr double kSecondsBounds[] = {.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2};
constexpr size_t kMaxReasonBytes = 500;
constexpr size_t kMaxLoggedReasons = 20;  // most reasons that are logged per grammar
constexpr size_t kBytesOfState = 128;     // approximate bytes per state of an automaton, with its
                                          // edges
constexpr MetricName kGrammars = {"heddle_grammars_total"};
constexpr const char* kGrammarsHelp =
    "Forms of answers that were asked for: kept from before, compiled, or refused.";

}  // namespace

GrammarCache::GrammarCache(std::shared_ptr<VocabularyMasks> masks)
    : masks_(std::move(masks)),
      metrics_(MetricNames::kHeddle, {}),
      hits_(metrics_.counter(kGrammars, kGrammarsHelp, {{"result", "cached"}})),
      compiled_(metrics_.counter(kGrammars, kGrammarsHelp, {{"result", "compiled"}})),
      refused_(metrics_.counter(kGrammars, kGrammarsHelp, {{"result", "refused"}})),
      seconds_(metrics_.histogram({"heddle_grammar_compile_seconds"},
                                  "Compiling a form of answers, with the masks made at once.",
                                  kSecondsBounds)) {}

size_t GrammarCache::states_of(const Compiled& grammar) {
  if (!grammar.ok()) return 0;
  const Automaton& automaton = (*grammar)->automaton();
  return automaton.num_states() + automaton.num_window_bytes() / kBytesOfState;
}

Result<std::shared_ptr<const TokenGrammar>> GrammarCache::get(const GrammarSource& source,
                                                              const CompileCheck* check) {
  {
    const MutexLock lock(mutex_);
    if (const auto found = kept_.find(source); found != kept_.end()) {
      uses_.splice(uses_.begin(), uses_, found->second.use);
      hits_.add();
      return found->second.grammar;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  Compiled compiled = [&]() -> Compiled {
    std::vector<std::string> left_out;
    HEDDLE_ASSIGN_OR_RETURN(Automaton automaton, compile(source, masks_.get(), &left_out, check));
    for (size_t i = 0; i < std::min(left_out.size(), kMaxLoggedReasons); ++i) {
      log_warning("a form of answers leaves out what it cannot hold to: " +
                  printable(left_out[i], kMaxReasonBytes));
    }
    if (left_out.size() > kMaxLoggedReasons) {
      log_warning(fmt::format("the same form leaves out {} more keywords, the last one for: {}",
                              left_out.size() - kMaxLoggedReasons,
                              printable(left_out.back(), kMaxReasonBytes)));
    }
    auto grammar = std::make_shared<const TokenGrammar>(std::move(automaton), masks_);
    grammar->make_masks();
    return grammar;
  }();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  seconds_.observe(taken.count());
  (compiled.ok() ? compiled_ : refused_).add();
  if (!compiled.ok() && compiled.status().code() != StatusCode::kInvalidArgument) return compiled;
  std::vector<Compiled> evicted;  // freed without the lock, which threads that read requests take
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
    evicted.push_back(std::move(oldest->second.grammar));
    kept_.erase(oldest);
  }
  return compiled;
}

bool GrammarCache::contains(const GrammarSource& source) const {
  const MutexLock lock(mutex_);
  return kept_.contains(source);
}

size_t GrammarCache::size() const {
  const MutexLock lock(mutex_);
  return kept_.size();
}

}  // namespace heddle::grammar
