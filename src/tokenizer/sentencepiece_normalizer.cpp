// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_normalizer.h"

#include <optional>

#include "tokenizer/sentencepiece_fields.h"

namespace heddle::tokenizer {

bool normalizer_keeps_text(std::string_view model) {
  // The defaults of the format.
  bool replaces = false;
  bool removes_white_space = true;
  bool marks_white_space = true;
  Fields fields(model);
  while (const std::optional<Field> field = fields.next()) {
    if (field->number != kNormalizerSpec) continue;
    if (field->type != kLengthDelimited) return false;
    Fields spec(field->bytes);
    while (const std::optional<Field> setting = spec.next()) {
      const bool is_flag =
          setting->number == kRemoveExtraWhitespaces || setting->number == kEscapeWhitespaces;
      if (is_flag && setting->type != kVarint) return false;
      if (setting->number == kPrecompiledCharsmap) {
        if (setting->type != kLengthDelimited) return false;
        replaces = !setting->bytes.empty();
      }
      if (setting->number == kRemoveExtraWhitespaces) removes_white_space = setting->value != 0;
      if (setting->number == kEscapeWhitespaces) marks_white_space = setting->value != 0;
    }
    if (!spec.is_well_formed()) return false;
  }
  return fields.is_well_formed() && !replaces && !removes_white_space && marks_white_space;
}

}  // namespace heddle::tokenizer
