// SPDX-License-Identifier: Apache-2.0
// GGUF's names of Gemma 4.
#pragma once

#include "models/gguf_translation.h"

namespace heddle::models {

void translate_gemma4(GgufTranslation& gguf);

}  // namespace heddle::models
