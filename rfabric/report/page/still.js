// A page of pictures that stand still.
drawPictures();
document.documentElement.dataset.ready = "yes";
