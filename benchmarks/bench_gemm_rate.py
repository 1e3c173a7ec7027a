"""Arithmetic rate of training ÷ the machine's own GEMM rate: MNIST 1 vs 7, doubly stochastic."""

from timing import best_time, gemm_rate, report

from models import AdvSVM
from pipeline.data import load_dataset


def training_flop(n_rows: int, dimension: int, n_features: int, batch_size: int) -> float:
    """Products X @ Ω of Algorithm 1: each iteration's features on its batch and on every row still to come."""
    rows = sum(n_rows - start for start in range(0, n_rows, batch_size))
    return 2.0 * rows * dimension * n_features


def main() -> None:
    data = load_dataset("mnist_1v7")
    model = AdvSVM(expansion="doubly_stochastic", dtype="float32")
    before = gemm_rate()
    seconds = best_time(lambda: model.fit(data.X_train, data.y_train), 4)
    machine = max(before, gemm_rate())
    rate = training_flop(*data.X_train.shape, 1024, model.batching(len(data.y_train))[0]) / seconds / 1e9
    report(
        "gemm_rate",
        section="Training",
        what="arithmetic rate of training with random features, MNIST 1v7",
        against="rate of one large matrix product",
        ratio=rate / machine,
        shown=f"{rate:.0f} of {machine:.0f} GFLOP/s",
        training_gflops=rate,
        machine_gflops=machine,
        fit_seconds=seconds,
        test_accuracy=float((model.predict(data.X_test) == data.y_test).mean()),
    )


if __name__ == "__main__":
    main()
