// SPDX-License-Identifier: Apache-2.0
// Translates GGUF files of Gemma 4 to the hub's names.
#pragma once

#include "models/gguf_translation.h"

namespace heddle::models {

void translate_gemma4(GgufTranslation& gguf);

}  // namespace heddle::models
