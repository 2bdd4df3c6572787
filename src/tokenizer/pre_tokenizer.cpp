// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

namespace heddle::tokenizer {
namespace {

struct Part {
  Span span;
  bool is_match = false;
};

// Passes the matches and the text between them to `on_part`, in order, until `on_part` returns
// false or `poll` says that the call is cancelled.
template <typename Function>
bool for_each_part(const SplitStep& step, std::string_view text, RegexScratch& scratch,
                   CancellationPoll& poll, Function on_part) {
  size_t done = 0;
  Span match;
  while (step.pattern.find(text, done, scratch, match)) {
    if (match.begin > done && !on_part(Part{{done, match.begin}, step.invert})) return false;
    if (!on_part(Part{match, !step.invert})) return false;
    if (poll.cancelled_after(match.end - done)) return false;
    done = match.end;
  }
  return done == text.size() || on_part(Part{{done, text.size()}, step.invert});
}

std::vector<Part> parts_of(const SplitStep& step, std::string_view text, RegexScratch& scratch,
                           CancellationPoll& poll) {
  std::vector<Part> parts;
  for_each_part(step, text, scratch, poll, [&parts](const Part& part) {
    parts.push_back(part);
    return true;
  });
  return parts;
}

// Joins each match to the part before it, unless that part is a match, too.
std::vector<Part> merge_with_previous(const std::vector<Part>& parts) {
  std::vector<Part> merged;
  bool after_match = false;
  for (const Part& part : parts) {
    if (part.is_match && !after_match && !merged.empty()) {
      merged.back().span.end = part.span.end;
    } else {
      merged.push_back(part);
    }
    after_match = part.is_match;
  }
  return merged;
}

std::vector<Part> merge_with_next(const std::vector<Part>& parts) {
  std::vector<Part> merged;
  bool before_match = false;
  for (size_t i = parts.size(); i-- > 0;) {
    if (parts[i].is_match && !before_match && !merged.empty()) {
      merged.back().span.begin = parts[i].span.begin;
    } else {
      merged.push_back(parts[i]);
    }
    before_match = parts[i].is_match;
  }
  std::ranges::reverse(merged);
  return merged;
}

std::vector<Part> merge_contiguous(const std::vector<Part>& parts) {
  std::vector<Part> merged;
  for (const Part& part : parts) {
    if (!merged.empty() && merged.back().is_match == part.is_match) {
      merged.back().span.end = part.span.end;
    } else {
      merged.push_back(part);
    }
  }
  return merged;
}

bool joins(SplitBehavior behavior) {
  return behavior != SplitBehavior::kIsolated && behavior != SplitBehavior::kRemoved;
}

std::vector<Part> join(const std::vector<Part>& parts, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kMergedWithPrevious) return merge_with_previous(parts);
  if (behavior == SplitBehavior::kMergedWithNext) return merge_with_next(parts);
  return merge_contiguous(parts);
}

std::string replace_spaces(const MetaspaceStep& step, std::string_view text, bool at_text_start) {
  const bool wants_prefix = step.prepend == MetaspaceStep::Prepend::kAlways ||
                            (step.prepend == MetaspaceStep::Prepend::kFirst && at_text_start);
  std::string result;
  result.reserve(text.size() + text.size() / 2 + step.replacement.size());
  if (wants_prefix && !text.starts_with(' ') && !text.starts_with(step.replacement)) {
    result.append(step.replacement);
  }
  for (const char c : text) {
    if (c == ' ') {
      result.append(step.replacement);
    } else {
      result.push_back(c);
    }
  }
  return result;
}

}  // namespace

// Depth first: each piece passes through all later steps before the next one is split, so that a
// changed text can be stored in the stack frame of the step that made it.
struct PreTokenizer::Run {
  const std::vector<PreTokenizerStep>& steps;
  RegexScratch& scratch;
  CancellationPoll& poll;
  const PieceFunction& on_piece;

  [[nodiscard]] bool piece(size_t index, std::string_view text, bool at_text_start) const {
    if (text.empty()) return true;
    if (index == steps.size()) return on_piece(text);
    return std::visit([&](const auto& step) { return apply(step, index + 1, text, at_text_start); },
                      steps[index]);
  }

  [[nodiscard]] bool apply(const SplitStep& step, size_t next, std::string_view text,
                           bool at_text_start) const {
    const auto emit = [&](Span span) {
      return piece(next, text.substr(span.begin, span.end - span.begin),
                   at_text_start && span.begin == 0);
    };
    if (joins(step.behavior)) {
      const auto parts = join(parts_of(step, text, scratch, poll), step.behavior);
      return !poll.cancelled() && std::ranges::all_of(parts, emit, &Part::span);
    }
    return for_each_part(step, text, scratch, poll, [&](const Part& part) {
      return (part.is_match && step.behavior == SplitBehavior::kRemoved) || emit(part.span);
    });
  }

  [[nodiscard]] bool apply(const PrefixSpaceStep&, size_t next, std::string_view text,
                           bool at_text_start) const {
    if (text.starts_with(' ')) return piece(next, text, at_text_start);
    std::string prefixed;
    prefixed.reserve(text.size() + 1);
    prefixed.append(" ").append(text);
    return piece(next, prefixed, at_text_start);
  }

  [[nodiscard]] bool apply(const MetaspaceStep& step, size_t next, std::string_view text,
                           bool at_text_start) const {
    const std::string replaced = replace_spaces(step, text, at_text_start);
    const std::string_view all = replaced;
    if (!step.split) return piece(next, all, at_text_start);
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = std::min(all.find(step.replacement, begin + 1), all.size());
      if (!piece(next, all.substr(begin, end - begin), at_text_start && begin == 0)) return false;
      begin = end;
    }
    return true;
  }
};

bool PreTokenizer::split(std::string_view text, bool at_text_start, RegexScratch& scratch,
                         CancellationPoll& poll, const PieceFunction& on_piece) const {
  const Run run{.steps = steps_, .scratch = scratch, .poll = poll, .on_piece = on_piece};
  return run.piece(0, text, at_text_start);
}

bool PreTokenizer::keeps_text() const {
  return std::ranges::none_of(steps_, [](const PreTokenizerStep& step) {
    const auto* split = std::get_if<SplitStep>(&step);
    return std::holds_alternative<MetaspaceStep>(step) ||
           (split != nullptr && split->behavior == SplitBehavior::kRemoved);
  });
}

}  // namespace heddle::tokenizer
