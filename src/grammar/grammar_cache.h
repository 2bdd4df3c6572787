// SPDX-License-Identifier: Apache-2.0
// GrammarCache: the compiled grammars of one vocabulary, by their source, so that a schema that a
// client sends with every request is compiled once. Errors in a source are cached, too, but not
// that a compilation was interrupted.
//
// Threading: thread-safe. Two threads may compile the same source at once; one result is cached.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <heddle/status.h>

#include "core/metrics.h"
#include "core/mutex.h"
#include "grammar/grammar.h"

namespace heddle::grammar {

class GrammarCache {
 public:
  static constexpr size_t kMaxGrammars = 1024;
  // The most states of all cached grammars together: some 200 MB. A usual schema has a few hundred.
  static constexpr size_t kMaxStates = size_t{1} << 22;
  // the most bytes of all cached sources together
  static constexpr size_t kMaxSourceBytes = size_t{1} << 25;

  explicit GrammarCache(std::shared_ptr<VocabularyMasks> masks);

  // Cost: a look-up, or compile() and TokenGrammar::make_masks(). `check` may be null. Error: that
  // of compile().
  Result<std::shared_ptr<const TokenGrammar>> get(const GrammarSource& source,
                                                  const CompileCheck* check = nullptr);

  // Whether the source is in the cache, so that get() only looks it up.
  [[nodiscard]] bool contains(const GrammarSource& source) const;

  [[nodiscard]] size_t size() const;

  // Metrics for Prometheus: the number of look-ups, and the time of compilations.
  [[nodiscard]] std::string metrics_text() const { return metrics_.to_text(); }

  // The masks that all grammars of this cache share.
  [[nodiscard]] const std::shared_ptr<VocabularyMasks>& masks() const { return masks_; }

 private:
  using Compiled = Result<std::shared_ptr<const TokenGrammar>>;

  struct Kept {
    Compiled grammar;
    std::list<const GrammarSource*>::iterator use;
  };

  static size_t states_of(const Compiled& grammar);

  const std::shared_ptr<VocabularyMasks> masks_;

  MetricRegistry metrics_;
  const MetricCounter hits_;
  const MetricCounter compiled_;
  const MetricCounter refused_;
  const MetricHistogram seconds_;

  mutable Mutex mutex_;
  std::map<GrammarSource, Kept> kept_ HEDDLE_GUARDED_BY(mutex_);
  // keys of kept_, most recently used first
  std::list<const GrammarSource*> uses_ HEDDLE_GUARDED_BY(mutex_);
  size_t num_states_ HEDDLE_GUARDED_BY(mutex_) = 0;
  size_t source_bytes_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::grammar
