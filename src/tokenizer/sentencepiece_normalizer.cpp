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

bool is_bpe_model(std::string_view model) {
  bool is_bpe = false;  // the default of the format is another type
  Fields fields(model);
  while (const std::optional<Field> field = fields.next()) {
    if (!field->holds_bytes(kTrainerSpec)) continue;
    Fields spec(field->bytes);
    while (const std::optional<Field> setting = spec.next()) {
      if (setting->number != kModelType) continue;
      if (setting->type != kVarint) return false;
      is_bpe = setting->value == kBpe;
    }
    if (!spec.is_well_formed()) return false;
  }
  return fields.is_well_formed() && is_bpe;
}

}  // namespace heddle::tokenizer
