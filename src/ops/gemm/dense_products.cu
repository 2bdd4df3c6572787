// SPDX-License-Identifier: Apache-2.0
// y [T, N] = x [T, K] weight' [K, N] through cuBLASLt, with fp32 sums and TF32 off. Host code: the
// library has the kernels. It computes y' = weight x', because its matrices are stored column by
// column. Flops: 2 * T * N * K. The first product of a shape also searches an algorithm, some 100
// us; later ones look it up. linear_cuda.cu uses it in fast mode from 5 rows on, where
// skinny_product.h has no kernel.
#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <cublasLt.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>

#include "core/check.h"
#include "ops/gemm/dense_products.h"

#define HEDDLE_TEXT_OF(x) #x
#define HEDDLE_VALUE_TEXT_OF(x) HEDDLE_TEXT_OF(x)

namespace heddle::ops {

namespace {

// The functions of the library that are used, with the types of its header.
struct Library {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
};

// The library is never unloaded: that takes as long as loading, and the process ends soon after.
Result<Library> load_library() {
  constexpr const char* kName = "libcublasLt.so." HEDDLE_VALUE_TEXT_OF(CUBLAS_VER_MAJOR);
  void* handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  std::string error;
  if (handle == nullptr) {
    const char* text = dlerror();
    error = text != nullptr ? text : "cannot be loaded";
    handle = dlopen((std::string("/usr/local/cuda/lib64/") + kName).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) {
    return unavailable(error + "; install cuBLAS of CUDA " HEDDLE_VALUE_TEXT_OF(
                                   CUBLAS_VER_MAJOR) " or name its folder in LD_LIBRARY_PATH");
  }
  Library library;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) missing = name;
  };
  find(library.create, "cublasLtCreate");
  find(library.destroy, "cublasLtDestroy");
  find(library.matmul, "cublasLtMatmul");
  find(library.choose, "cublasLtMatmulAlgoGetHeuristic");
  find(library.desc_create, "cublasLtMatmulDescCreate");
  find(library.desc_destroy, "cublasLtMatmulDescDestroy");
  find(library.desc_set, "cublasLtMatmulDescSetAttribute");
  find(library.layout_create, "cublasLtMatrixLayoutCreate");
  find(library.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(library.preference_create, "cublasLtMatmulPreferenceCreate");
  find(library.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(library.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  if (missing != nullptr) {
    return unavailable(std::string(kName) + " has no " + missing);
  }
  return library;
}

Status library_status(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return device_lost(std::string(call) + ": status " + std::to_string(static_cast<int>(status)));
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      HEDDLE_CHECK(dtype == DType::kF32);
      return CUDA_R_32F;
  }
}

// The largest power of two, at most 256, that divides the address of every row.
uint32_t alignment_of(const TensorView& tensor) {
  const uint64_t bits = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(tensor.data)) |
                        static_cast<uint64_t>(bytes_of(tensor.dtype, tensor.row_stride)) | 256u;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

// The properties of a product that determine which algorithm is chosen.
struct ProductShape {
  int64_t T, K, N;
  int64_t x_stride, weight_stride, y_stride;
  DType input, output;
  uint32_t x_alignment, weight_alignment, y_alignment;
  auto operator<=>(const ProductShape&) const = default;
};

// The description of a product of one shape for the library. Its matrices are stored column by
// column, so that our rows are its columns: it computes y' [N, T] = weight [N, K] x' [K, T].
struct Plan {
  Plan(const Library& functions) : library(&functions) {}

  ~Plan() {
    if (product != nullptr) library->desc_destroy(product);
    for (cublasLtMatrixLayout_t layout : {weight, x, y}) {
      if (layout != nullptr) library->layout_destroy(layout);
    }
  }

  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const Library* library;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, y = nullptr;
  std::optional<cublasLtMatmulAlgo_t> algorithm;  // nullopt: the library has no algorithm
};

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

// Most plans that are kept: prompts of every length up to a chunk, for all products of a model.
constexpr size_t kMostPlans = 1 << 16;

class CublasLtProducts final : public DenseProducts {
 public:
  CublasLtProducts(const Library& library, cublasLtHandle_t handle, device::Buffer workspace)
      : library_(library), handle_(handle), workspace_(std::move(workspace)) {}

  ~CublasLtProducts() override { library_.destroy(handle_); }

  Status multiply(device::CudaStream& stream, const DenseProduct& product) override {
    const ProductShape shape{.T = product.x.shape[0],
                             .K = product.x.shape[1],
                             .N = product.weight.shape[0],
                             .x_stride = stride_of(product.x),
                             .weight_stride = stride_of(product.weight),
                             .y_stride = stride_of(product.y),
                             .input = product.x.dtype,
                             .output = product.y.dtype,
                             .x_alignment = alignment_of(product.x),
                             .weight_alignment = alignment_of(product.weight),
                             .y_alignment = alignment_of(product.y)};
    auto found = plans_.find(shape);
    if (found == plans_.end()) {
      auto plan = std::make_unique<Plan>(library_);
      HEDDLE_RETURN_IF_ERROR(describe(shape, *plan));
      if (plans_.size() >= kMostPlans) plans_.clear();
      found = plans_.emplace(shape, std::move(plan)).first;
    }
    const Plan& plan = *found->second;
    if (!plan.algorithm) return unimplemented("cublasLt has no algorithm for the product");
    const float alpha = 1.0f;
    const float beta = product.accumulate ? 1.0f : 0.0f;
    nvtxRangePushA("dense_product");
    const cublasStatus_t status = library_.matmul(
        handle_, plan.product, &alpha, product.weight.data, plan.weight, product.x.data, plan.x,
        &beta, product.y.data, plan.y, product.y.data, plan.y, &*plan.algorithm, workspace_.data(),
        static_cast<size_t>(kWorkspaceBytes), stream.handle());
    nvtxRangePop();
    return library_status(status, "cublasLtMatmul");
  }

 private:
  // With a single row the tensor's stride is meaningless and may be less than the width.
  static int64_t stride_of(const TensorView& tensor) {
    return tensor.shape[0] <= 1 ? tensor.shape[1] : tensor.row_stride;
  }

  Status describe(const ProductShape& shape, Plan& plan) const {
    // CUBLAS_COMPUTE_32F: fp32 inputs are multiplied in fp32, never TF32; 16-bit inputs are summed
    // in fp32.
    HEDDLE_RETURN_IF_ERROR(
        library_status(library_.desc_create(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                       "cublasLtMatmulDescCreate"));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    HEDDLE_RETURN_IF_ERROR(
        library_status(library_.desc_set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                         sizeof(transposed)),
                       "cublasLtMatmulDescSetAttribute"));
    const auto lay_out = [&](cublasLtMatrixLayout_t& layout, DType dtype, int64_t width,
                             int64_t rows, int64_t stride) {
      return library_status(
          library_.layout_create(&layout, data_type(dtype), static_cast<uint64_t>(width),
                                 static_cast<uint64_t>(rows), stride),
          "cublasLtMatrixLayoutCreate");
    };
    HEDDLE_RETURN_IF_ERROR(
        lay_out(plan.weight, shape.input, shape.K, shape.N, shape.weight_stride));
    HEDDLE_RETURN_IF_ERROR(lay_out(plan.x, shape.input, shape.K, shape.T, shape.x_stride));
    HEDDLE_RETURN_IF_ERROR(lay_out(plan.y, shape.output, shape.N, shape.T, shape.y_stride));

    cublasLtMatmulPreference_t preference = nullptr;
    HEDDLE_RETURN_IF_ERROR(
        library_status(library_.preference_create(&preference), "cublasLtMatmulPreferenceCreate"));
    const Status chosen = choose(shape, preference, plan);
    library_.preference_destroy(preference);
    return chosen;
  }

  Status choose(const ProductShape& shape, cublasLtMatmulPreference_t preference,
                Plan& plan) const {
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return library_status(library_.preference_set(preference, attribute, &value, sizeof(value)),
                            "cublasLtMatmulPreferenceSetAttribute");
    };
    HEDDLE_RETURN_IF_ERROR(
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes)));
    // If an algorithm splits K, its parts must be added in fp32 and in order.
    HEDDLE_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                  static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
    HEDDLE_RETURN_IF_ERROR(
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.weight_alignment));
    HEDDLE_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.x_alignment));
    HEDDLE_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.y_alignment));
    HEDDLE_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.y_alignment));
    cublasLtMatmulHeuristicResult_t best{};
    int num_found = 0;
    const cublasStatus_t status = library_.choose(handle_, plan.product, plan.weight, plan.x,
                                                  plan.y, plan.y, preference, 1, &best, &num_found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
    HEDDLE_RETURN_IF_ERROR(library_status(status, "cublasLtMatmulAlgoGetHeuristic"));
    if (num_found > 0 && best.state == CUBLAS_STATUS_SUCCESS) plan.algorithm = best.algo;
    return {};
  }

  Library library_;
  cublasLtHandle_t handle_;
  device::Buffer workspace_;
  std::map<ProductShape, std::unique_ptr<Plan>> plans_;
};

}  // namespace

Result<std::unique_ptr<DenseProducts>> DenseProducts::create(device::CudaDevice& gpu) {
  HEDDLE_ASSIGN_OR_RETURN(const Library library, load_library());
  HEDDLE_ASSIGN_OR_RETURN(device::Buffer workspace, gpu.allocate(kWorkspaceBytes));
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = library.create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return unavailable("cublasLtCreate: status " + std::to_string(static_cast<int>(status)));
  }
  return std::unique_ptr<DenseProducts>(
      std::make_unique<CublasLtProducts>(library, handle, std::move(workspace)));
}

}  // namespace heddle::ops
