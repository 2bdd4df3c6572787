// SPDX-License-Identifier: Apache-2.0
#include "core/shape_contract.h"

#include <fmt/format.h>

namespace heddle {

ShapeContract& ShapeContract::expect(const char* name, const TensorView& tensor,
                                     std::initializer_list<Dim*> dims, DTypeSet dtypes) {
  if (!status_.ok()) return *this;
  if (!dtypes.contains(tensor.dtype)) {
    status_ = invalid_argument(fmt::format("{}: {} has dtype {}, which is not taken here", op_,
                                           name, to_string(tensor.dtype)));
    return *this;
  }
  if (tensor.shape.rank() != static_cast<int>(dims.size())) {
    status_ = invalid_argument(fmt::format("{}: {} has shape {}, but {} dimensions are needed", op_,
                                           name, tensor.shape.to_string(), dims.size()));
    return *this;
  }
  int index = 0;
  for (Dim* dim : dims) {
    const int64_t seen = tensor.shape[index++];
    if (dim->value_ < 0) {
      dim->value_ = seen;
      dim->source_ = name;
    } else if (dim->value_ != seen) {
      status_ =
          invalid_argument(fmt::format("{}: {} has {} = {}, {} has {} = {}", op_, name, dim->name_,
                                       seen, dim->source_, dim->name_, dim->value_));
      return *this;
    }
  }
  if (tensor.data == nullptr && tensor.packed == nullptr && tensor.num_elements() > 0) {
    status_ = invalid_argument(fmt::format("{}: {} has no memory", op_, name));
  }
  return *this;
}

ShapeContract& ShapeContract::require(bool holds, const char* name, double value,
                                      const char* must) {
  if (status_.ok() && !holds) {
    status_ = invalid_argument(fmt::format("{}: {} is {}, it must {}", op_, name, value, must));
  }
  return *this;
}

}  // namespace heddle
