// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/dnnl_product.h"

#include "ops/gemm/bf16_product.h"

#if HEDDLE_ONEDNN

#include <map>
#include <tuple>

#include <oneapi/dnnl/dnnl.hpp>

#include "core/log.h"

// Declared here, because the header of oneDNN's OpenMP runtime only comes with compilers.
extern "C" void omp_set_num_threads(int);

#endif

namespace heddle::ops {

bool dnnl_takes(const Product& product) {
  return product.weight_dtype == DType::kBf16 && product.T >= kMinDnnlRows && product.N >= 64 &&
         product.K > 0 && bf16_row_width(product.K) == product.K && product.bias == nullptr &&
         product.x_rows == nullptr && product.weight_stride == product.K &&
         product.y_stride == product.N;
}

#if HEDDLE_ONEDNN

namespace {

using dnnl::memory;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine kEngine(dnnl::engine::kind::cpu, 0);
  return kEngine;
}

// Creates a primitive for y [M, N] f32 = x [M, K] bf16 times weights [N, K] bf16, read in place.
dnnl::matmul make_matmul(int64_t M, int64_t N, int64_t K) {
  const memory::desc x({M, K}, memory::data_type::bf16, memory::format_tag::ab);
  const memory::desc weights({K, N}, memory::data_type::bf16, memory::format_tag::ba);
  const memory::desc y({M, N}, memory::data_type::f32, memory::format_tag::ab);
  return dnnl::matmul(
      dnnl::matmul::primitive_desc(dnnl::matmul::desc(x, weights, y), cpu_engine()));
}

// State of a thread: its primitives, and the OpenMP setting that keeps oneDNN from starting
// threads.
class ThreadState {
 public:
  ThreadState() : stream_(cpu_engine()) { omp_set_num_threads(1); }

  void run(const Product& product, int64_t row_begin, int64_t num_rows) {
    const auto key = std::make_tuple(num_rows, product.N, product.K);
    auto found = primitives_.find(key);
    if (found == primitives_.end()) {
      if (static_cast<int64_t>(primitives_.size()) >= kMaxDnnlShapes) primitives_.clear();
      found = primitives_.emplace(key, make_matmul(num_rows, product.N, product.K)).first;
    }
    const auto bf16 = memory::data_type::bf16;
    auto* x = const_cast<uint16_t*>(product.x_bf16 + row_begin * product.x_bf16_stride);
    memory source({{num_rows, product.K}, bf16, memory::format_tag::ab}, cpu_engine(), x);
    memory weights({{product.K, product.N}, bf16, memory::format_tag::ba}, cpu_engine(),
                   const_cast<void*>(product.weight));
    memory target({{num_rows, product.N}, memory::data_type::f32, memory::format_tag::ab},
                  cpu_engine(), product.y + row_begin * product.y_stride);
    found->second.execute(
        stream_, {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, target}});
    stream_.wait();
  }

 private:
  dnnl::stream stream_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, dnnl::matmul> primitives_;
};

}  // namespace

bool has_dnnl_products() { return has_bf16_products(); }

bool dnnl_products_pay() {
  static const bool kHasTiles = [] {
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    return isa == dnnl::cpu_isa::avx512_core_amx;
  }();
  return kHasTiles;
}

// oneDNN throws exceptions; this function catches them.
bool dnnl_product(const Product& product, int64_t row_begin, int64_t row_end) {
  try {
    thread_local ThreadState state;
    state.run(product, row_begin, row_end - row_begin);
    return true;
  } catch (const dnnl::error& error) {
    log_warning(std::string("oneDNN refused a product; our own kernel computes it: ") +
                error.what());
    return false;
  }
}

#else

bool has_dnnl_products() { return false; }

bool dnnl_products_pay() { return false; }

bool dnnl_product(const Product&, int64_t, int64_t) { return false; }

#endif

}  // namespace heddle::ops
