// SPDX-License-Identifier: Apache-2.0
// Access to parts of values: attributes, items, slices, iteration and length.
//
// An attribute is a method of the value's type or, if there is none, the item of that name; for an
// item (a[b]) the order is reversed. No attribute gives access to anything but the data. A method
// that would change a list or a dict is an undefined value; using it reports the reason.
#pragma once

#include <string_view>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

// Reads object.name. A missing attribute or item is undefined, with a reason. Error: `object`
// itself is undefined.
Result<Value> get_attribute(Budget* budget, const Value& object, std::string_view name);
Result<Value> get_item(Budget* budget, const Value& object, const Value& key);

// Follows a path such as "details.priority" or "0", which filters accept as their attribute
// argument. A missing item is replaced by `otherwise`, if given.
Result<Value> get_path(Budget* budget, const Value& object, const Value& path,
                       const Value* otherwise = nullptr);

// object[begin:end:step], in which each part may be None or absent (nullptr). Error: the object
// cannot be sliced, or a part is not an integer.
Result<Value> get_slice(Budget* budget, const Value& object, const Value* begin, const Value* end,
                        const Value* step);

// The values that a for loop visits: items, keys, characters; none for undefined. A generator is
// consumed. Error: the value is not iterable.
Result<SequencePtr> iterate(Budget* budget, const Value& value);

// len(), also for a generator, which Python refuses. Error: the value has no length.
Result<int64_t> length_of(const Value& value);

}  // namespace heddle::chat
