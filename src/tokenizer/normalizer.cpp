// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <optional>
#include <utility>

#include <utf8proc.h>

#include "tokenizer/character_class.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

// One step: the new text, or none when it stays as it is. Once `poll` or `on_part` has ended the
// work, the text that comes back is of no use.
class StepRunner {
 public:
  StepRunner(std::string_view text, RegexScratch& scratch, CancellationPoll& poll,
             const PartFunction& on_part)
      : text_(text), scratch_(scratch), poll_(poll), on_part_(on_part) {}

  std::optional<std::string> operator()(NormalForm form) {
    if (is_surely_normal(text_, form)) return std::nullopt;
    std::string result;
    result.reserve(text_.size());
    ended_ = !append_normal_form(text_, form, result, poll_, on_part_);
    return result;
  }

  std::optional<std::string> operator()(const PrependStep& step) {
    if (text_.empty()) return std::nullopt;
    std::string result;
    result.reserve(step.text.size() + text_.size());
    result.append(step.text).append(text_);
    return result;
  }

  std::optional<std::string> operator()(const ReplaceStep& step) {
    Span match;
    if (!step.pattern.find(text_, 0, scratch_, match)) return std::nullopt;
    std::string result;
    result.reserve(text_.size());
    size_t done = 0;
    do {
      result.append(text_.substr(done, match.begin - done)).append(step.content);
      if (poll_.cancelled_after(match.end - done)) break;
      done = match.end;
    } while (step.pattern.find(text_, done, scratch_, match));
    result.append(text_.substr(done));
    return result;
  }

  std::optional<std::string> operator()(const LowercaseStep&) {
    return map([](char32_t code_point, std::string& out) {
      const auto lower = utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point));
      append_utf8(static_cast<char32_t>(lower), out);
    });
  }

  std::optional<std::string> operator()(const StripAccentsStep&) {
    return map([](char32_t code_point, std::string& out) {
      if (!is_mark(code_point)) append_utf8(code_point, out);
    });
  }

  std::optional<std::string> operator()(const StripStep& step) {
    std::string_view rest = text_;
    if (step.left) rest.remove_prefix(leading_white_space(rest));
    if (step.right) rest.remove_suffix(trailing_white_space(rest));
    return std::string(rest);
  }

  [[nodiscard]] bool ended() const { return ended_ || poll_.cancelled(); }

 private:
  template <typename Mapping>
  [[nodiscard]] std::string map(Mapping mapping) {
    std::string result;
    result.reserve(text_.size());
    for (size_t i = 0; i < text_.size();) {
      const Utf8Unit unit = decode_utf8(text_.substr(i));
      mapping(unit.code_point, result);
      i += unit.length;
      if (poll_.cancelled_after(unit.length)) break;
    }
    return result;
  }

  std::string_view text_;
  RegexScratch& scratch_;
  CancellationPoll& poll_;
  const PartFunction& on_part_;
  bool ended_ = false;
};

}  // namespace

std::optional<std::string_view> Normalizer::apply(std::string_view text, std::string& buffer,
                                                  RegexScratch& scratch, CancellationPoll& poll,
                                                  const PartFunction& on_part) const {
  const PartFunction no_function;
  for (const NormalizerStep& step : steps_) {
    StepRunner runner(text, scratch, poll, &step == &steps_.back() ? on_part : no_function);
    std::optional<std::string> changed = std::visit(runner, step);
    if (runner.ended()) return std::nullopt;
    if (!changed) continue;
    buffer = *std::move(changed);
    text = buffer;
  }
  return text;
}

}  // namespace heddle::tokenizer
