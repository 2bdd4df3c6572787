// SPDX-License-Identifier: Apache-2.0
#include "chat/filters.h"

namespace heddle::chat {

FilterFunction find_filter(std::string_view name) {
  for (const auto find_in_family : {find_text_filter, find_number_filter, find_sequence_filter,
                                    find_selection_filter, find_json_filter}) {
    if (const FilterFunction found = find_in_family(name)) return found;
  }
  return nullptr;
}

}  // namespace heddle::chat
