// SPDX-License-Identifier: Apache-2.0
// GrammarCache: compiled grammars of one vocabulary by their source, so that a client that sends
// the same schema with every request pays for it once. That a source has errors is kept, too, but
// not that its compilation was ended.
//
// Threading: thread-safe. Two threads may compile the same source at once; one result is kept.
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
  // Limit for all grammars together: some 200 MB. A usual schema has a few hundred.
  static constexpr size_t kMaxStates = size_t{1} << 22;
  static constexpr size_t kMaxSourceBytes = size_t{1} << 25;  // limit for all sources together

  explicit GrammarCache(std::shared_ptr<VocabularyMasks> masks);

  // Cost: a look-up, or compile() and TokenGrammar::make_masks(). `check` may be null. Error: that
  // of compile().
  Result<std::shared_ptr<const TokenGrammar>> get(const GrammarSource& source,
                                                  const CompileCheck* check = nullptr);

  // Whether get() is a look-up.
  [[nodiscard]] bool contains(const GrammarSource& source) const;

  [[nodiscard]] size_t size() const;

  // For Prometheus: how many were asked for, and how long compiling took.
  [[nodiscard]] std::string metrics_text() const { return metrics_.to_text(); }

  // Masks shared by all its grammars.
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
  std::list<const GrammarSource*> uses_ HEDDLE_GUARDED_BY(mutex_);  // keys of kept_, latest first
  size_t num_states_ HEDDLE_GUARDED_BY(mutex_) = 0;
  size_t source_bytes_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::grammar
