// SPDX-License-Identifier: Apache-2.0
// PreTokenizer cuts text into the pieces that BPE works on: the "pre_tokenizer" of a tokenizer
// file, as a flat list of steps, each of which splits the pieces of the step before.
//
// Threading: built by one thread, then immutable and thread-safe with one RegexScratch per call.
// Cost: one regex match a piece; pieces are views and nothing is allocated by plain splitting.
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

// The treatment of a split's matches ("delimiters"); the text between them is kept in any case.
enum class SplitBehavior : uint8_t {
  kIsolated,            // a piece each
  kRemoved,             // dropped
  kMergedWithPrevious,  // joined to the piece before
  kMergedWithNext,      // joined to the piece after
  kContiguous,          // neighbouring matches form one piece
};

struct SplitStep {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the text between the matches is the delimiter
};

// A space before every piece that has none.
struct PrefixSpaceStep {};

// Spaces become `replacement`, one is put in front, and pieces start at each of them.
struct MetaspaceStep {
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };
  std::string replacement;
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};

using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep, MetaspaceStep>;

class PreTokenizer {
 public:
  using PieceFunction = std::function<bool(std::string_view piece)>;  // returns false to stop

  // Limit of steps, and so of the nesting of pieces.
  static constexpr size_t kMaxSteps = 64;

  template <typename Step>
  void add(Step step) {
    steps_.emplace_back(std::in_place_type<Step>, std::move(step));
  }

  [[nodiscard]] size_t num_steps() const { return steps_.size(); }

  // Calls `on_piece` for the non-empty pieces in order; a piece lives during its call only.
  // `at_text_start`: `text` is the beginning of the text to encode. False: `on_piece` or `poll`
  // ended it. The text behind the last piece is not split then, except by steps of a behaviour that
  // joins pieces.
  bool split(std::string_view text, bool at_text_start, RegexScratch& scratch,
             CancellationPoll& poll, const PieceFunction& on_piece) const;

  // True when every byte of a text is in some piece.
  [[nodiscard]] bool keeps_text() const;

 private:
  struct Run;
  std::vector<PreTokenizerStep> steps_;
};

// ---- Patterns that files name without spelling them out ----

// GPT-2's, used by ByteLevel pre-tokenizers and by vocab.json with merges.txt.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Qwen2's, for vocab.json with merges.txt of that class; newer files spell it out.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Llama 3's, for tiktoken.model.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Kimi's, for tiktoken.model of that class.
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
