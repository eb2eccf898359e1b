// A minimal controller-runtime operator: one status patch for each ModelClaim, as a peer in the controller benchmark.
package main

import (
	"context"
	"os"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

type reconciler struct{ client.Client }

func newClaim() *unstructured.Unstructured {
	claim := &unstructured.Unstructured{}
	claim.SetGroupVersionKind(schema.GroupVersionKind{Group: "model.aibrix.ai", Version: "v1alpha1", Kind: "ModelClaim"})
	return claim
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	claim := newClaim()
	if err := r.Get(ctx, request.NamespacedName, claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if phase, _, _ := unstructured.NestedString(claim.Object, "status", "phase"); phase == "Active" {
		return ctrl.Result{}, nil
	}
	before := claim.DeepCopy()
	if err := unstructured.SetNestedField(claim.Object, "Active", "status", "phase"); err != nil {
		return ctrl.Result{}, err
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return ctrl.Result{}, client.IgnoreNotFound(r.Status().Patch(ctx, claim, patch))
}

func main() {
	log.SetLogger(zap.New())
	workers, err := strconv.Atoi(os.Getenv("WORKERS"))
	must(err)
	config := ctrl.GetConfigOrDie()
	config.QPS = -1 // the default of 20 requests/s would measure the limit
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: metrics.Options{BindAddress: "0"}})
	must(err)
	must(ctrl.NewControllerManagedBy(manager).For(newClaim()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&reconciler{manager.GetClient()}))
	must(manager.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
