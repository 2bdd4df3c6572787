// SPDX-License-Identifier: Apache-2.0
// StopPattern: a regular expression that ends a text where it matches, compiled to a deterministic
// automaton over bytes.
//
// Threading: immutable; thread-safe. Memory: 2 bytes for every pair of a state and a class of
//            bytes, at most 512 KiB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

namespace heddle {

class StopPattern {
 public:
  using State = uint16_t;

  static constexpr size_t kMaxStates = 1024;
  static constexpr size_t kMaxBytes = 1024;  // most bytes of a regular expression
  static constexpr State kStart = 0;
  static constexpr State kNone = 0xffff;  // no match can follow, whatever the next bytes are

  // Compiles a regular expression. The syntax is that of constrained answers
  // (docs/structured-output.md), without ^: a match may begin anywhere. The shortest match counts,
  // so that $ changes nothing.
  // Cost: some milliseconds, up to a tenth of a second for regexes made to be expensive.
  // Error: kInvalidArgument for a syntax error, a match of no text, or too many states.
  static Result<std::shared_ptr<const StopPattern>> compile(std::string_view regex);

  [[nodiscard]] const std::string& text() const { return text_; }

  [[nodiscard]] size_t num_states() const { return kinds_.size(); }

  [[nodiscard]] State next(State state, uint8_t byte) const {
    return targets_[state * num_classes_ + classes_[byte]];
  }

  // Whether a text that leads to this state is a match.
  [[nodiscard]] bool is_final(State state) const { return (kinds_[state] & kFinal) != 0; }

  // Whether more bytes may extend the match.
  [[nodiscard]] bool goes_on(State state) const { return (kinds_[state] & kGoesOn) != 0; }

 private:
  static constexpr uint8_t kFinal = 1, kGoesOn = 2;

  StopPattern() = default;

  std::string text_;
  // Class of each byte; bytes of a class have the same transitions.
  std::array<uint8_t, 256> classes_{};
  size_t num_classes_ = 0;
  std::vector<State> targets_;  // next states, indexed by [state, class]
  std::vector<uint8_t> kinds_;
};

}  // namespace heddle
