// SPDX-License-Identifier: Apache-2.0
// PreTokenizer splits text into the pieces on which BPE works: the "pre_tokenizer" of a tokenizer
// file, as a flat list of steps, each of which splits the pieces of the step before.
//
// Threading: built by one thread, then immutable and thread-safe with one RegexScratch per call.
// Cost: one regex match per piece; pieces are views, and plain splitting allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/cancellation.h"
#include "tokenizer/regex.h"

namespace heddle::tokenizer {

// The treatment of a split's matches ("delimiters"); the text between them is always kept.
enum class SplitBehavior : uint8_t {
  kIsolated,            // each match is a piece
  kRemoved,             // each match is dropped
  kMergedWithPrevious,  // joined to the piece before
  kMergedWithNext,      // joined to the piece after
  kContiguous,          // neighbouring matches form one piece
};

struct SplitStep {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // true: the text between the matches is the delimiter
};

// Adds a space before every piece that does not begin with one.
struct PrefixSpaceStep {};

// Replaces spaces by `replacement`, adds one at the front, and begins a piece at each of them.
struct MetaspaceStep {
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };
  std::string replacement;
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};

using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep, MetaspaceStep>;

class PreTokenizer {
 public:
  // receives a piece; returns false to stop the splitting
  using PieceFunction = std::function<bool(std::string_view piece)>;

  // The most steps, which also limits the nesting of pieces.
  static constexpr size_t kMaxSteps = 64;

  template <typename Step>
  void add(Step step) {
    steps_.emplace_back(std::in_place_type<Step>, std::move(step));
  }

  [[nodiscard]] size_t num_steps() const { return steps_.size(); }

  // Calls `on_piece` for the non-empty pieces in order; a piece is valid only during its call.
  // `at_text_start`: `text` is the beginning of the text to encode. Returns false if `on_piece` or
  // `poll` ended the call. The text after the last piece is then not split, except by steps with a
  // behaviour that joins pieces.
  bool split(std::string_view text, bool at_text_start, RegexScratch& scratch,
             CancellationPoll& poll, const PieceFunction& on_piece) const;

  // Whether every byte of a text is in some piece.
  [[nodiscard]] bool keeps_text() const;

 private:
  struct Run;
  std::vector<PreTokenizerStep> steps_;
};

// ---- Patterns that tokenizer files refer to by name

// GPT-2's pattern, for ByteLevel pre-tokenizers and for vocab.json with merges.txt.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Qwen2's pattern, for its vocab.json with merges.txt; newer files contain it.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Llama 3's pattern, for tiktoken.model.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Kimi's pattern, for its tiktoken.model.
inline constexpr std::string_view kKimiPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

inline constexpr std::string_view kDigitPattern = R"(\p{N})";
inline constexpr std::string_view kDigitsPattern = R"(\p{N}+)";
inline constexpr std::string_view kPunctuationPattern = R"([\p{P}!-/:-@\[-`{-~])";
inline constexpr std::string_view kWhitespacePattern = R"(\s)";
inline constexpr std::string_view kWordOrSymbolsPattern = R"(\w+|[^\w\s]+)";

}  // namespace heddle::tokenizer
